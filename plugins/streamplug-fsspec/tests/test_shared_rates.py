"""Processes of a machine share the rates of requests, whatever happens to one of them."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import tempfile

import pytest
from streamplug_fsspec import shared_rates
from streamplug_fsspec.shared_rates import SharedRates, hash_place

NAME = "https://me.example"
PLACE = hash_place(NAME)

HOLD = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shared_rates, "_opened", [])
    return tmp_path


def path_of(temp):
    [path] = temp.glob(f"streamplug-{os.getuid()}/{shared_rates._FILE_NAME}")
    return path


def refuse(rate, now):
    rate.refuse(now, 0.0, 500.0)


def test_what_one_changes_others_see(temp):
    one, other = SharedRates(), SharedRates()
    assert not other.is_limited(PLACE)
    one.change(PLACE, refuse)
    assert other.is_limited(PLACE)
    assert other.read(PLACE) == one.read(PLACE)
    assert other.read(PLACE).floor == 250.0
    assert not other.is_limited(PLACE + 1)


def test_places_of_one_slot_are_kept_apart(temp, monkeypatch):
    monkeypatch.setattr(shared_rates, "_NUM_SLOTS", 16)
    rates = SharedRates()
    rates.change(
        PLACE, lambda rate, _: setattr(rate, "sent", 5.0)
    )  # has no limit, and may be replaced
    places = [PLACE + 16 * number for number in range(1, 17)]
    for place in places:
        assert not rates.is_limited(place)
        assert rates.change(place, lambda rate, _: rate.sent) == 0.0
        rates.change(
            place, lambda rate, now, place=place: rate.refuse(now, 0.0, float(place % 999))
        )
    assert [rates.read(place).floor for place in places] == [
        max(place % 999 / 2, 10.0) for place in places
    ]
    assert not rates.is_limited(PLACE)


def test_the_file_is_private_and_names_no_place(temp):
    SharedRates().change(PLACE, refuse)
    path = path_of(temp)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert b"me.example" not in path.read_bytes() + os.fsencode(path)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_stops_with_the_lock_holds_up_nobody(temp, how):
    rates = SharedRates()
    command = [sys.executable, "-c", HOLD, path_of(temp)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout.readline()
            holder.send_signal(how)
            if how is signal.SIGKILL:
                holder.wait()
            rates.change(PLACE, refuse)
            assert rates.is_limited(PLACE)
        finally:
            holder.kill()


def _refuse_in_process():
    rates = shared_rates.shared_rates()
    rates.change(PLACE, refuse)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_any_start_method_share_it(temp, method, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(temp))
    rates = shared_rates.shared_rates()
    process = multiprocessing.get_context(method).Process(target=_refuse_in_process)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert rates.is_limited(PLACE)


def test_a_forked_process_has_a_lock_of_its_own(temp):
    rates = shared_rates.shared_rates()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, b"y" if shared_rates._opened == [] else b"n")
        os._exit(0)
    assert os.read(reading, 1) == b"y"
    os.waitpid(child, 0)
    rates.change(PLACE, refuse)


@pytest.mark.parametrize(
    "changes",
    [
        {"floor": math.nan},
        {"floor": -1.0},
        {"updated_at": 1e12},
        {"updated_at": 0.0, "paused_until": 1e12},
    ],
)
def test_what_cannot_be_of_this_boot_is_forgotten(temp, changes):
    rates = SharedRates()

    def change(rate, now):
        refuse(rate, now)
        for name, value in changes.items():
            setattr(rate, name, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_rates.time, "monotonic", lambda: changes.get("updated_at", 1.0))
        rates.change(PLACE, change)
    assert rates.change(PLACE, lambda rate, _: rate.floor) == 0.0
    assert not rates.is_limited(PLACE)


def test_without_a_directory_a_process_is_on_its_own(temp, monkeypatch, caplog):
    (temp / f"streamplug-{os.getuid()}").write_bytes(b"")
    one, other = SharedRates(), SharedRates()
    assert "do not slow down together" in caplog.text
    one.change(PLACE, refuse)
    assert one.is_limited(PLACE)
    assert not other.is_limited(PLACE)
