"""Encodings that read parts of values, and the buffers that fetch them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import streamplug_ranges.plugin
from hypothesis import given
from hypothesis import strategies as st
from streamplug_ranges.range_buffer import RangeBuffer
from streamplug_testing import isolated_plugins

from streamplug import Callback, Encoding, MDSWriter, StreamingDataset, register_encoding
from streamplug.errors import DecodeError, StorageError
from streamplug.interfaces import GatherBuffer, RangesRead, StoredRange
from streamplug.types import FileInfo

CONTENT = np.random.default_rng(0).integers(0, 255, 100_000, np.uint8)


class Memory:
    """A reader of one file, which counts what is read."""

    def __init__(self):
        self.spans = []

    def read(self, file, ranges):
        self.spans += ranges.tolist()
        return [CONTENT[start:stop] for start, stop in ranges.tolist()]


def buffer(store=None):
    return RangeBuffer(store or Memory(), FileInfo("file", len(CONTENT), {}))


places = st.lists(st.tuples(st.integers(0, 99_000), st.integers(0, 999)), max_size=9)


@given(places)
def test_reads_as_a_buffer_in_memory(some):
    starts, sizes = np.array(some, np.int64).reshape(-1, 2).T
    near, far = GatherBuffer(CONTENT), buffer()
    assert list(map(bytes, far.slices(starts, sizes))) == list(
        map(bytes, near.slices(starts, sizes))
    )
    assert far.join(starts, sizes).tobytes() == near.join(starts, sizes).tobytes()
    assert far.gather(starts, 7).tobytes() == near.gather(starts, 7).tobytes()
    assert (far.array(starts, np.dtype("<u4")) == near.array(starts, np.dtype("<u4"))).all()
    for value, start, size in zip(far.values(starts, sizes), starts, sizes):
        assert len(value) == size
        [data] = value.read(np.array([[0, size]]))
        assert data.tobytes() == CONTENT[start : start + size].tobytes()


def test_values_outside_of_the_file_are_refused():
    for read in (buffer().slices, buffer().values, buffer().join):
        with pytest.raises(DecodeError, match="outside the 100000 bytes"):
            read(np.array([99_999]), np.array([2]))


def test_near_values_take_one_request():
    store = Memory()
    buffer(store).slices(np.array([10, 50_000, 300]), np.array([5, 5, 5]))
    assert store.spans == [[10, 305], [50_000, 50_005]]


class Ends(Encoding):
    """The first and the last byte of a value."""

    partial = True

    def encode(self, value):
        return bytes(value)

    def decode(self, data):
        if isinstance(data, StoredRange):
            size = len(data)
            first, last = data.read(np.array([[0, 1], [size - 1, size]]))
        else:
            first, last = data[:1], data[-1:]
        if bytes(first) == b"\xff":
            raise DecodeError("it begins with 255")
        return bytes(first) + bytes(last)


class Traffic(Callback):
    bytes = 0

    def on_event(self, event, world):
        if isinstance(event, RangesRead):
            self.bytes += event.bytes


@pytest.fixture
def remote(tmp_path):
    with isolated_plugins(streamplug_ranges.plugin):
        register_encoding("ends", Ends)
        columns = {"id": "int", "text": "str", "value": "ends"}
        with MDSWriter(out=str(tmp_path / "set"), columns=columns, max_samples_per_shard=5) as out:
            for n in range(12):
                value = bytes([255 if n == 7 else n]) + bytes(100_000) + bytes([n + 1])
                out.write({"id": n, "text": f"text {n}", "value": value})
        yield str(tmp_path / "set")


def test_only_parts_are_fetched(remote):
    traffic = Traffic()
    dataset = StreamingDataset(
        remote=remote, access="range", batch_size=4, shuffle=True, callbacks=[traffic]
    )
    some = [0, 11, 4, 5]
    assert [s["value"] for s in dataset[some]] == [bytes([n, n + 1]) for n in some]
    assert dataset[3] == {"id": 3, "text": "text 3", "value": b"\x03\x04"}
    assert traffic.bytes < 5000
    with pytest.raises(DecodeError, match=r"sample 2, column 'value': it begins with 255"):
        list(dataset.batches())
    assert traffic.bytes < 10_000
    good = StreamingDataset(
        remote=remote, access="range", batch_size=4, on_error="substitute", shuffle=True
    )
    for batch in good.batches():
        assert batch["value"] == [bytes([n, n + 1]) for n in batch["id"]]
        assert batch["text"] == [f"text {n}" for n in batch["id"]]


def test_same_values_by_shard(remote):
    dataset = StreamingDataset(local=remote, batch_size=6)
    assert dataset[3]["value"] == b"\x03\x04"
    assert dataset[[11, 0]][0]["value"] == b"\x0b\x0c"


def test_other_columns_are_fetched_as_before(remote):
    traffic = Traffic()
    dataset = StreamingDataset(
        remote=remote, access="range", columns=["id"], callbacks=[traffic], batch_size=4
    )
    assert dataset[3] == {"id": 3}
    assert traffic.bytes > 100_000


def test_lost_file_is_a_storage_error(remote, tmp_path):
    dataset = StreamingDataset(remote=remote, access="range", download_retry=0)
    assert dataset[0]["id"] == 0
    (tmp_path / "set" / "shard.00000.mds").unlink()
    with pytest.raises(StorageError):
        dataset[1]


def test_ranges_pickle(tmp_path):
    value = StoredRange(_read, 3, 5)
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert copy.read(np.array([[0, 2]]))[0].tolist() == CONTENT[3:5].tolist()


def _read(ranges):
    return [CONTENT[start:stop] for start, stop in ranges.tolist()]
