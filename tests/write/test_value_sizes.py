"""Sizes of the values of arrays beside the shards: written, merged, and read as untrusted data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamplug import MDSWriter
from streamplug.errors import InvalidIndexError
from streamplug.index import (
    ShardValueSizes,
    pack_value_sizes,
    parse_index,
    unpack_value_sizes,
)
from streamplug.types import FileInfo

COLUMNS = {
    "id": "str",
    "ids": "ndarray:uint16",
    "mask": "ndarray:int8",
    "fixed": "ndarray:uint16:3",
    "weights": "ndarray:float32",
    "any": "ndarray",
    "n": "int",
}


def sample(number: int, length: int) -> dict[str, Any]:
    return {
        "id": "x" * (number % 5),
        "ids": np.arange(length, dtype=np.uint16),
        "mask": np.ones(2 * length, np.int8),
        "fixed": np.zeros(3, np.uint16),
        "weights": np.zeros(length, np.float32),
        "any": np.zeros(length, np.uint16),
        "n": number,
    }


def stored(folder: Path) -> list[ShardValueSizes]:
    index = parse_index((folder / "index.json").read_bytes(), "index.json")
    files = [folder / file.basename for file in index.value_sizes]
    for path, file in zip(files, index.value_sizes):
        assert path.stat().st_size == file.bytes
    return [shard for path in files for shard in unpack_value_sizes(path.read_bytes())]


def sizes_of(folder: Path, column: str) -> list[int]:
    index = parse_index((folder / "index.json").read_bytes(), "index.json")
    shards = stored(folder)
    assert [shard.raw.basename for shard in shards] == [
        index.shard(number).basename for number in range(len(index))
    ]
    assert [shard.samples for shard in shards] == index.samples.tolist()
    return [size for shard in shards for size in shard.sizes[column].tolist()]


@pytest.mark.parametrize("lengths", [[0], [1, 300, 0, 70_000], [40, 7] * 30])
@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("compression", [None, "gz"])
def test_sizes_of_integer_arrays_are_stored(tmp_path, lengths, in_batches, compression):
    samples = [sample(number, length) for number, length in enumerate(lengths)]
    with MDSWriter(
        out=tmp_path / "set", columns=COLUMNS, size_limit=6000, compression=compression
    ) as out:
        if in_batches:
            out.write_batch({name: [row[name] for row in samples] for name in COLUMNS})
        else:
            for row in samples:
                out.write(row)
    assert {name for shard in stored(tmp_path / "set") for name in shard.sizes} == {"ids", "mask"}
    dimension = [1 if n < 256 else 2 if n < 65_536 else 4 for n in lengths]
    assert sizes_of(tmp_path / "set", "ids") == [
        1 + width + 2 * n for n, width in zip(lengths, dimension)
    ]


def test_appended_shards_have_a_file_of_their_own(tmp_path):
    for append in (False, True, True):
        with MDSWriter(
            out=tmp_path / "set", columns={"ids": "ndarray:uint16"}, append=append
        ) as out:
            out.write({"ids": np.arange(3 + append, dtype=np.uint16)})
    assert sizes_of(tmp_path / "set", "ids") == [8, 10, 10]
    names = sorted(path.name for path in (tmp_path / "set").glob("*.sizes"))
    assert names == ["shard.00000.sizes", "shard.00001.sizes", "shard.00002.sizes"]


@pytest.mark.parametrize("columns", [{"n": "int"}, {"ids": "ndarray:uint16:3"}, {"b": "bytes"}])
def test_nothing_is_written_without_such_columns(tmp_path, columns):
    values = {"n": 1, "ids": np.zeros(3, np.uint16), "b": b"1"}
    with MDSWriter(out=tmp_path / "set", columns=columns) as out:
        out.write({name: values[name] for name in columns})
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == ["index.json", "shard.00000.mds"]
    assert json.loads((tmp_path / "set" / "index.json").read_text()).keys() == {"shards", "version"}


def test_they_are_not_written_if_not_wanted(tmp_path):
    with MDSWriter(
        out=tmp_path / "set", columns={"ids": "ndarray:uint16"}, value_sizes=False
    ) as out:
        out.write({"ids": np.arange(3, dtype=np.uint16)})
    assert not stored(tmp_path / "set")


arrays = st.lists(st.integers(0, (1 << 63) - 1), max_size=5)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(arrays, st.text(max_size=5)), max_size=4))
def test_files_keep_all_sizes(shards):
    described = [
        ShardValueSizes(
            FileInfo(name, 7, {}),
            len(sizes),
            {"a": np.array(sizes, np.int64), "b": np.arange(len(sizes))},
        )
        for sizes, name in shards
    ]
    found = unpack_value_sizes(pack_value_sizes(described))
    for one, other in zip(found, described, strict=True):
        assert (one.raw, one.samples) == (other.raw, other.samples)
        for name in ("a", "b"):
            assert one.sizes[name].tolist() == other.sizes[name].tolist()


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_damaged_files_are_refused(data):
    shard = ShardValueSizes(FileInfo("x", 7, {}), 3, {"a": np.arange(3)})
    content = bytearray(pack_value_sizes([shard]))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content = bytearray(data.draw(st.binary(max_size=100)))
    with pytest.raises(InvalidIndexError, match="damaged sizes of values"):
        unpack_value_sizes(bytes(content))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "value_sizes must be a list"),
        ([None], r"value_sizes\[0\] must be an object"),
        ([{"basename": "../x", "bytes": 1, "hashes": {}}], "not a relative path"),
        ([{"basename": "x", "bytes": -1, "hashes": {}}], r"value_sizes\[0\].bytes"),
    ],
)
def test_damaged_lists_of_them_are_refused(value, message):
    data = json.dumps({"shards": [], "version": 2, "value_sizes": value}).encode()
    with pytest.raises(InvalidIndexError, match=message):
        parse_index(data, "index.json")
