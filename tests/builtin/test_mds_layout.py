"""Many samples of MDS at once: adjacent columns that are copied together, and parts of what was found."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from streamplug_testing.equality import same

from streamplug.builtin import mds
from streamplug.builtin.mds import MDS, MDSLayout
from streamplug.interfaces import (
    Column,
    Encoding,
    GatherBuffer,
    ShardFile,
    ShardInfo,
    WriteSettings,
)
from streamplug.plugin import make
from streamplug.types import FileInfo

SPECS = {
    "a": "int",
    "b": "float32",
    "c": "uint8",
    "d": "str",
    "e": "float64",
    "f": "ndarray:int16:3",
    "g": "bytes",
    "h": "int8",
    "i": "float16",
    "j": "ndarray:float32:100",
    "k": "uint32",
}
COUNT = 50


def columns(**others: Encoding) -> list[Column]:
    return [Column(n, spec, others.get(n) or make("encoding", spec)) for n, spec in SPECS.items()]


def row(number: int) -> dict[str, Any]:
    return {
        "a": -number,
        "b": np.float32(number / 3),
        "c": np.uint8(number),
        "d": "d" * (number % 5),
        "e": np.float64(number / 7),
        "f": np.arange(number, number + 3, dtype=np.int16),
        "g": bytes([number]) * (number % 3),
        "h": np.int8(-number),
        "i": np.float16(number),
        "j": np.full(100, number, np.float32),
        "k": np.uint32(number << 20),
    }


@pytest.fixture(scope="module")
def data() -> np.ndarray[Any, Any]:
    it = MDS().writer(columns(), WriteSettings(None, (), None))
    rows = [it.encode(row(number)) for number in range(COUNT)]
    sizes = np.array([len(each) for each in rows], np.int64)
    return np.frombuffer(b"".join(map(bytes, it.assemble(rows, sizes)["data"])), np.uint8)


def where(data: np.ndarray[Any, Any], rows: list[int]) -> tuple[Any, ...]:
    none = np.zeros(len(rows), np.int64)
    return GatherBuffer(data), none, none + len(data), np.array(rows, np.int64)


@pytest.mark.parametrize(
    "names", ["abcdefghijk", "kjihgfedcba", "abc", "ac", "b", "cde", "hik", "ik", "fi", "jk", "ba"]
)
def test_any_columns_are_those_of_single_samples(data, names):
    chosen = [next(c for c in columns() if c.name == name) for name in names]
    layout, rows = MDS().multi_shard_reader(columns()), [7, 0, 49, 7, 23]
    found = layout.take(*where(data, rows), chosen)
    for column, values in zip(chosen, found, strict=True):
        assert same(list(column.encoding.unbatch(values)), [row(n)[column.name] for n in rows])
        if isinstance(values, np.ndarray):
            assert values.flags.c_contiguous
            assert values.flags.writeable
            assert values.flags.aligned


def test_columns_are_planned_once_for_all_shards_and_in_linear_time(data, monkeypatch):
    chosen, format_, checks = columns(), MDS(), []
    is_plain = mds._is_plain
    monkeypatch.setattr(mds, "_is_plain", lambda e: checks.append(e) or is_plain(e))
    file = ShardFile(FileInfo("shard.mds", len(data), {}), None)
    headers = [
        format_.open_header(ShardInfo(n, COUNT, {"data": file}), data, chosen) for n in range(5)
    ]
    for header in headers:
        start = header.byte_ranges(np.array([3]))[0, :1]
        assert header.take(np.array([3]), data, start, chosen)[0].tolist() == [-3]
    assert len(checks) <= 2 * len(chosen)
    assert vars(pickle.loads(pickle.dumps(format_))) == {}

    sizes = []
    wide = [Column(f"{n:04}", "uint8", Sized(sizes)) for n in range(1000)]
    layout = MDSLayout(wide)
    sizes.clear()
    assert layout._runs(wide)[0].at == list(range(1000))
    assert len(sizes) < 10 * len(wide)


class Sized(type(make("encoding", "uint8"))):
    """An encoding that counts how often it is asked for its size."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    @property
    def size(self) -> int:
        self.sizes.append(1)
        return 1


def test_columns_that_were_copied_together_share_no_memory(data):
    chosen = columns()[:3]
    first, second, third = MDS().multi_shard_reader(columns()).take(*where(data, [1, 2]), chosen)
    second[:] = 0
    assert first.tolist() == [-1, -2]
    assert third.tolist() == [1, 2]
    assert first.base is not second.base or first.base is None


def test_who_decodes_a_column_otherwise_is_asked(data):
    class Halved(type(make("encoding", "float32"))):
        def decode_batch(self, *where: Any) -> Any:
            return super().decode_batch(*where) / 2

    chosen = columns(b=Halved())[:3]
    found = MDS().multi_shard_reader(columns(b=Halved())).take(*where(data, [6, 9]), chosen)
    assert found[1].tolist() == [1.0, 1.5]
    assert found[0].tolist() == [-6, -9]


@pytest.mark.parametrize("at_once", [1, 2000, 1 << 20])
def test_parts_are_those_of_the_whole(data, monkeypatch, at_once):
    monkeypatch.setattr(mds, "_MAX_DECODED_BYTES", at_once)
    layout, rows = MDS().multi_shard_reader(columns()), list(range(3, 40))
    whole = layout.take(*where(data, rows), columns())
    parts = [slice(0, 8), slice(8, 16), slice(16, 17), slice(17, 37)]
    found = list(layout.take_parts(*where(data, rows), columns(), parts=parts))
    assert len(found) == len(parts)
    for part, values in zip(parts, found, strict=True):
        for all_, some in zip(whole, values, strict=True):
            assert same(list(all_[part]), list(some))


def test_parts_are_decoded_when_they_are_asked_for(data, monkeypatch):
    monkeypatch.setattr(mds, "_MAX_DECODED_BYTES", 1)
    decoded = []

    class Noted(type(make("encoding", "bytes"))):
        def decode_batch(self, buffer: Any, starts: Any, sizes: Any) -> Any:
            decoded.append(len(starts))
            return super().decode_batch(buffer, starts, sizes)

    columns_ = columns(g=Noted())
    parts = [slice(0, 2), slice(2, 5), slice(5, 6)]
    found = (
        MDS()
        .multi_shard_reader(columns_)
        .take_parts(*where(data, list(range(6))), columns_, parts=parts)
    )
    assert next(found)[0].tolist() == [0, -1]
    assert decoded == [2]
    assert [values[0].tolist() for values in found] == [[-2, -3, -4], [-5]]
    assert decoded == [2, 3, 1]
