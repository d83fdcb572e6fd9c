"""Servers that stop in the middle: an error that may pass, in time, and never a hang."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from streamplug_testing import http
from streamplug_testing.http import serving

from streamplug import MDSWriter, StreamingDataset
from streamplug.errors import Transient
from streamplug.index import INDEX_NAME
from tests.stall_clock import StallClock

pytest.importorskip("aiohttp")

COUNT = 60
SHARD = "shard.00001.mds"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.backoff_seconds", lambda _: 0.0)
    with MDSWriter(
        out=tmp_path / "www/set", columns={"n": "int", "b": "bytes"}, size_limit=1 << 14
    ) as out:
        for n in range(COUNT):
            out.write({"n": n, "b": bytes([n]) * 1000})
    return tmp_path / "www"


@pytest.fixture
def server(root, monkeypatch):
    monkeypatch.setattr(http, "_CHUNK", 100)  # so that even a short answer has a middle
    with serving(root) as server:
        yield server


class Stalls:
    """Lets answers about a file stop, before their first byte or half-way, so many times."""

    def __init__(self, server, clock, name, *, times=10**9, half_way=True):
        self.name, self.times, self.asked, self.clock = name, times, 0, clock
        self.gate = server.gate
        if half_way:
            server.holds = self.now
        else:
            server.lie = self.silent

    def now(self, path):
        self.asked += path.endswith(self.name)
        if not path.endswith(self.name) or self.asked > self.times:
            return False
        self.clock.hang(self.name)
        return True

    def silent(self, path, wanted, data):
        if self.now(path):
            self.gate.wait(600)
        return data


def far(server, timeout=0.3, retries=1, **wishes):
    return StreamingDataset(
        remote=f"{server.url}/set",
        download_timeout=timeout,
        download_retry=retries,
        download_patience=0,
        batch_size=4,
        **wishes,
    )


@pytest.fixture
def clock(monkeypatch):
    return StallClock(monkeypatch)


def whole(dataset):
    return [sample["n"] for sample in dataset] == list(range(COUNT))


@pytest.mark.parametrize("half_way", [True, False])
@pytest.mark.parametrize("access", ["shard", "range"])
def test_an_index_that_does_not_come_is_an_error(server, clock, tmp_path, access, half_way):
    stalls = Stalls(server, clock, INDEX_NAME, half_way=half_way)
    local = {} if access == "range" else {"local": str(tmp_path / "near")}
    with pytest.raises(Transient, match=r"set/index.json: nothing arrived for 0.3 s"):
        far(server, access=access, **local)
    # At first in memory, where a slow answer cannot be told from none.
    assert stalls.asked == 3
    stalls.times = stalls.asked + 1
    assert whole(far(server, access=access, **local))


def test_an_index_that_comes_slowly_arrives(server, root, tmp_path, monkeypatch):
    index = root / "set" / INDEX_NAME
    index.write_text(index.read_text() + " " * 400_000)
    monkeypatch.setattr(http, "_CHUNK", 10_000)
    server.gate.set()
    passed = 0.0
    clock = SimpleNamespace(monotonic=lambda: passed)
    monkeypatch.setattr("streamplug.transfer.stall_timeout.time", clock)

    def slow(path):
        nonlocal passed
        if path.endswith(INDEX_NAME):
            time.sleep(0.1)
            passed += 0.1
        return True

    server.holds = slow
    assert whole(far(server, timeout=1.0, retries=0, local=str(tmp_path / "near")))
    # One that was read in memory had to be given up.
    asked = [request[0] for request in server.requests if request[1].endswith(INDEX_NAME)]
    assert asked.count("GET") == 2


@pytest.mark.parametrize("half_way", [True, False])
def test_samples_by_range_that_do_not_come_are_an_error(server, clock, half_way):
    dataset = far(server, access="range")
    first = int(dataset._reader.starts[1])
    stalls = Stalls(server, clock, SHARD, half_way=half_way)
    with pytest.raises(Transient, match=rf"set/{SHARD}: nothing arrived for 0.3 s"):
        dataset[first]
    assert stalls.asked == 2
    assert dataset[0]["n"] == 0
    found = []
    with pytest.raises(Transient, match=SHARD):
        found.extend(sample["n"] for sample in dataset)
    assert found == list(range(first // 4 * 4))
    stalls.times = stalls.asked + 1
    assert dataset[first]["n"] == first
    assert whole(dataset)


def test_what_was_given_up_leaves_nothing(server, clock, tmp_path):
    Stalls(server, clock, INDEX_NAME)
    near = tmp_path / "near"
    with pytest.raises(Transient):
        far(server, local=str(near))
    end = time.monotonic() + 60
    while _requests() and time.monotonic() < end:
        time.sleep(0.01)
    assert _requests() == []
    assert not near.exists() or not list(Path(near).rglob("*-*-*"))


def _requests():
    return [thread for thread in threading.enumerate() if thread.name == "streamplug-request"]
