"""Clocks that are set back or ahead, again and again, while data sets are read."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from streamplug.cache.quota import CacheQuota
from streamplug.dataset import StreamingDataset
from streamplug.errors import Transient
from streamplug.transfer.locks import STATE_DIR, cache_lock, lock_slot
from streamplug.transfer.retry import call_with_retries
from tests.stall_clock import StallClock

FIRST, DAY = "shard.00000.mds", 86400
SHARDS = 12


@pytest.fixture(params=["back", "ahead", "to and fro"])
def clock(request, monkeypatch):
    """Let the clock of the system, and of the file system, be another at every look."""
    draw = random.Random(5)
    steps = {"back": lambda: -DAY, "ahead": lambda: DAY}
    step = steps.get(request.param, lambda: draw.randrange(-400, 400) * DAY)
    now, utime, lock = [time.time()], os.utime, threading.Lock()

    def tell():
        with lock:
            now[0] = max(now[0] + step(), 1.0)
            return now[0]

    def stamp(path, times=None, *, ns=None, **more):
        if times is None and ns is None:
            times = (tell(),) * 2
        if ns is not None:
            utime(path, ns=ns, **more)
        else:
            utime(path, times, **more)

    monkeypatch.setattr(time, "time", tell)
    monkeypatch.setattr(time, "time_ns", lambda: int(tell() * 1e9))
    monkeypatch.setattr(os, "utime", stamp)
    return tell


def read(dataset):
    seen = [sample["id"] for sample in dataset]
    assert sorted(seen) == list(range(8 * SHARDS))


@pytest.fixture
def place(tmp_path, serve, write, no_waiting):
    class Place:
        far, near = tmp_path / "far", tmp_path / "near"
        size = write(far, SHARDS)
        server = serve(far)

        def open(self, **arguments):
            return StreamingDataset(
                remote=self.server.url, local=str(self.near), batch_size=8, **arguments
            )

    return Place()


def test_a_limited_cache_serves_and_keeps_its_limit(place, clock, monkeypatch):
    monkeypatch.setattr("streamplug.read.open_shards.USED_SECONDS", -1.0)
    limit = 4 * place.size
    for epoch in range(3):
        read(place.open(cache_limit=limit))
        assert sum(path.stat().st_size for path in place.near.glob("shard*")) <= limit
        # Stored order, a shard to a batch: whatever goes, none is needed twice.
        assert sum(place.server.gets[f"shard.{n:05d}.mds"] for n in range(SHARDS)) <= SHARDS * (
            epoch + 1
        )
    assert list((place.near / STATE_DIR / "tmp").iterdir()) == []


@pytest.mark.parametrize("stamp", [0, 4_000_000_000])
def test_files_of_another_time_are_evicted_too(place, stamp):
    read(place.open())
    for path in place.near.glob("shard*"):
        os.utime(path, (stamp, stamp))
    limit = 4 * place.size
    (place.near / FIRST).unlink()
    read(place.open(cache_limit=limit))
    assert sum(path.stat().st_size for path in place.near.glob("shard*")) <= limit
    # What was just read is what is left.
    last = f"shard.{SHARDS - 1:05d}.mds"
    assert (place.near / last).exists()


@pytest.mark.parametrize("stamp", [0, 4_000_000_000])
def test_leftovers_are_told_by_their_locks_and_not_by_their_age(tmp_path, stamp):
    room, folder = CacheQuota(tmp_path, 100), tmp_path / STATE_DIR / "tmp"
    folder.mkdir(parents=True)
    dead, live = (folder / f"{lock_slot(name):03d}-40-{name}" for name in ("dead", "live"))
    assert lock_slot("dead") != lock_slot("live")
    with cache_lock(tmp_path, "live"):
        for path in (dead, live):
            path.touch()
            os.utime(path, (stamp, stamp))
        room.remove_stale()
        assert [path.name for path in folder.iterdir()] == [live.name]
    room.remove_stale()
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("clock")
def test_a_server_that_stops_sending_is_given_up_all_the_same(place, monkeypatch):
    stalls, gate = StallClock(monkeypatch), threading.Event()

    def stall(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        handler.wfile.write(b"x" * 20_000)
        handler.wfile.flush()
        stalls.hang(FIRST)
        gate.wait(600)
        handler.close_connection = True
        return True

    place.server.hooks[FIRST] = stall
    try:
        with pytest.raises(Transient, match=r"nothing arrived for 0\.3 s, after \d+ bytes"):
            place.open(download_timeout=0.3, download_retry=0, download_patience=0)[0]
    finally:
        gate.set()


def test_a_server_that_is_slow_is_not_given_up(place, clock):
    data = (place.far / FIRST).read_bytes()

    def slow(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.flush()
        time.sleep(1.0)
        handler.wfile.write(data)
        return True

    place.server.hooks[FIRST] = slow
    assert place.open(download_timeout=20.0, download_retry=0)[0]["id"] == 0
    assert place.server.gets[FIRST] == 1


def test_retries_and_their_pauses_are_as_many_and_as_long(clock, monkeypatch):
    slept, calls = [], []
    monkeypatch.setattr("streamplug.transfer.retry.sleep", slept.append)

    def fail():
        calls.append(1)
        raise Transient("again")

    with pytest.raises(Transient):
        call_with_retries(fail, 4)
    assert len(calls) == 5
    assert [0.5 * 2**n <= pause <= 0.5 * 2**n + 0.5 for n, pause in enumerate(slept)] == [True] * 4
