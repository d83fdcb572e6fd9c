"""Pieces of shards that arrive while samples of others are decoded."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from streamplug_ranges import RangeReader, RangeShards

from streamplug import MDSWriter, Stream
from streamplug.builtin.local_storage import LocalStorage
from streamplug.errors import CorruptShardError, StorageError, Transient
from streamplug.read import Reader
from streamplug.transfer.pool import ThreadPool
from streamplug.types import FileInfo


class Gated(LocalStorage):
    """Keeps one file back until it is let go, and has lost another one."""

    def __init__(self, url, kept="", lost=""):
        super().__init__(url)
        self.kept, self.lost, self.gate = kept, lost, threading.Event()

    def read_ranges(self, key, ranges):
        if key == self.kept:
            assert self.gate.wait(20)
        if key == self.lost:
            raise StorageError(f"{key} is lost")
        return super().read_ranges(key, ranges)


@pytest.fixture
def folder(tmp_path):
    with MDSWriter(out=tmp_path, columns={"n": "int", "b": "bytes"}, size_limit=5000) as out:
        for n in range(60):
            out.write({"n": n, "b": bytes([n]) * 900})
    return tmp_path


def reader_of(folder, **how):
    index = Stream(local=str(folder)).open().index
    storage = Gated(str(folder), **how)
    shards = RangeShards(index, RangeReader(storage, 0), None)
    return Reader([index.starts], [shards]), storage, shards


def test_the_first_are_decoded_while_others_are_on_their_way(folder):
    reader, storage, shards = reader_of(folder, kept="shard.00001.mds")
    values = reader._gather(np.arange(10))
    assert list(next(values).values[1]) == [0, 1, 2, 3, 4]  # the second is still kept back
    storage.gate.set()
    assert list(next(values).values[1]) == [5, 6, 7, 8, 9]
    assert list(values) == []
    assert not shards._process_state.ranges


def test_what_could_not_be_fetched_is_the_error_of_those_who_need_it(folder):
    reader, _, shards = reader_of(folder, lost="shard.00001.mds")
    values = reader._gather(np.arange(20))
    next(values)
    with pytest.raises(StorageError, match=r"shard\.00001\.mds is lost"):
        next(values)
    assert not shards._process_state.ranges
    with pytest.raises(StorageError, match=r"shard\.00001\.mds is lost"):
        reader.rows(np.array([6, 40]))
    assert [row["n"] for row in reader.rows(np.array([40, 3]))] == [40, 3]


def test_whoever_is_interrupted_at_the_start_leaves_nothing(folder, monkeypatch):
    reader, _, shards = reader_of(folder)
    submit, count = ThreadPool.submit, itertools.count()

    def interrupted(self, *given):
        if next(count) == 5:
            raise KeyboardInterrupt
        return submit(self, *given)

    monkeypatch.setattr(ThreadPool, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.rows(np.arange(60))
    assert not [t for t in threading.enumerate() if t.name == "streamplug-prefetch"]
    assert not shards._process_state.ranges


def test_whoever_stops_early_leaves_nothing(folder):
    reader, storage, shards = reader_of(folder, kept="shard.00003.mds")
    values = reader._gather(np.arange(60))
    next(values)
    storage.gate.set()
    values.close()
    assert not shards._process_state.ranges
    assert not [t for t in threading.enumerate() if t.name == "streamplug-prefetch"]


class Counting(LocalStorage):
    """Notes what is asked for, of which something is lost."""

    def __init__(self, url, lost=()):
        super().__init__(url)
        self.lost, self.asked, self.lock = lost, [], threading.Lock()

    def read_ranges(self, key, ranges):
        with self.lock:
            self.asked.append((key, min(start for start, _ in ranges)))
        if key in self.lost:
            raise Transient(f"{key} is lost")
        return super().read_ranges(key, ranges)


def counting(folder, retries=0, lost=()):
    index = Stream(local=str(folder)).open().index
    storage = Counting(str(folder), lost)
    shards = RangeShards(index, RangeReader(storage, retries), None)
    return Reader([index.starts], [shards]), storage


def test_a_range_that_no_memory_holds_is_refused_before_it_is_split(folder):
    file = FileInfo("shard.00000.mds", 1 << 60, {})
    with pytest.raises(CorruptShardError, match=r"shard\.00000\.mds: a range of \d+ bytes"):
        RangeReader(LocalStorage(str(folder)), 0).read(file, np.array([[0, 8], [8, 1 << 60]]))


def test_a_range_that_no_memory_holds_fails_alone(folder):
    reader = RangeReader(LocalStorage(str(folder)), 0)
    good, bad = (FileInfo(f"shard.0000{n}.mds", 1 << 60, {}) for n in range(2))
    ranges = [(good, np.array([[0, 8]])), (bad, np.array([[0, 1 << 60]]))]
    results = dict(reader.read_many(ranges))
    assert [len(part) for part in results[0]()] == [8]
    with pytest.raises(CorruptShardError, match=r"shard\.00001\.mds: a range of"):
        results[1]()


def test_each_head_is_read_once(many):
    reader, storage = counting(many)
    shards = len(reader.starts) - 1
    ids = np.concatenate([reader.starts[:-1] + 3, reader.starts[1:] - 2])
    for id_, row in zip(ids, reader.rows(ids)):
        assert set(row["b"]) == {id_ % 251}
    heads = [key for key, start in storage.asked if start < 100]
    assert len(heads) == len(set(heads)) == shards


def test_a_head_that_is_lost_is_tried_as_often_as_was_said(many, monkeypatch):
    monkeypatch.setattr("streamplug.transfer.retry.sleep", lambda _: None)
    reader, storage = counting(many, retries=2, lost=("shard.00002.mds",))
    with pytest.raises(Transient, match=r"shard\.00002\.mds is lost; gave up after 3 attempts"):
        reader.rows(np.arange(0, 1600, 20))
    assert sum(key == "shard.00002.mds" for key, _ in storage.asked) == 3
