"""What encodings say of one-dimensional arrays without decoding them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.builtin.encodings.array import NDArrayEncoding
from streamplug.builtin.encodings.plain import Bytes
from streamplug.builtin.mds import MDS
from streamplug.interfaces import Column, GatherBuffer, ShardFile, ShardInfo, WriteSettings
from streamplug.types import FileInfo

LENGTHS = [0, 1, 2, 126, 127, 254, 255, 256, 257, 258, 65_533, 65_535, 65_536, 65_537, 70_000]
DTYPES = ["uint8", "uint16", "int32", "uint64"]


def stored(encoding, values):
    """Encode values, back to back; returns the buffer, where each begins, and their sizes."""
    parts = [encoding.encode(value) for value in values]
    sizes = np.array([len(part) for part in parts])
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum(sizes) - sizes, sizes


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_size_of_an_array_tells_its_length(dtype, bare):
    encoding = NDArrayEncoding(None if bare else dtype)
    item = np.dtype(dtype)
    assert encoding.item == (None if bare else item)
    buffer, starts, sizes = stored(encoding, [np.zeros(n, dtype) for n in LENGTHS])
    assert encoding.lengths(sizes, item).tolist() == LENGTHS
    assert encoding.are_vectors(GatherBuffer(buffer), starts, np.array(LENGTHS), item).all()


@given(size=st.integers(0, 140_000), dtype=st.sampled_from(DTYPES))
def test_a_size_tells_the_length_only_of_arrays_that_have_it(size, dtype):
    encoding, item = NDArrayEncoding(dtype), np.dtype(dtype)
    length = int(encoding.lengths(np.array([size]), item)[0])
    if length >= 0:
        assert len(encoding.encode(np.zeros(length, dtype))) == size
    else:
        near = range(max(size // item.itemsize - 9, 0), size // item.itemsize + 1)
        assert all(len(encoding.encode(np.zeros(n, dtype))) != size for n in near)


def test_other_arrays_of_the_same_size_are_told_apart():
    encoding, item = NDArrayEncoding(), np.dtype("uint16")
    values = [np.zeros(4, "uint16"), np.zeros(4, "int16"), np.zeros((1, 1, 3), "uint16")]
    buffer, starts, sizes = stored(encoding, values)
    lengths = encoding.lengths(sizes, item)
    assert lengths.tolist() == [4, 4, 4]
    assert encoding.are_vectors(GatherBuffer(buffer), starts, lengths, item).tolist() == [
        True,
        False,
        False,
    ]
    damaged = buffer.copy()
    damaged[starts[0] + 2] = 3  # the dimension
    assert not encoding.are_vectors(GatherBuffer(damaged), starts, lengths, item)[0]


def test_arrays_of_a_fixed_shape_are_vectors_if_they_have_one_dimension():
    item = np.dtype("uint16")
    sizes = np.array([8, 10])
    assert NDArrayEncoding("uint16", (4,)).lengths(sizes, item).tolist() == [4, -1]
    assert NDArrayEncoding("uint16", (2, 2)).lengths(sizes, item).tolist() == [-1, -1]


def test_bytes_are_vectors_of_whatever_divides_them():
    assert Bytes().item is None
    assert Bytes().lengths(np.array([0, 6, 7]), np.dtype("uint16")).tolist() == [0, 3, -1]


@pytest.mark.parametrize("more", [[], [("a", "int32")], [("a", "int32"), ("z", "bytes")]])
def test_mds_tells_where_values_lie_and_what_its_head_can(more):
    encodings = {
        "tokens": NDArrayEncoding("uint16"),
        "a": NDArrayEncoding("int32", (2,)),
        "z": Bytes(),
    }
    columns = [Column(name, "", encodings[name]) for name in sorted({"tokens", *dict(more)})]
    rows = [
        {"tokens": np.arange(n, dtype=np.uint16), "a": np.zeros(2, np.int32), "z": b"z" * n}
        for n in (3, 0, 300, 7)
    ]
    writer = MDS().writer(columns, WriteSettings(None, (), None))
    parts = [writer.encode({c.name: row[c.name] for c in columns}) for row in rows]
    files = writer.assemble(parts, np.array([len(part) for part in parts]))
    data = np.frombuffer(b"".join(files["data"]), np.uint8)
    info = ShardInfo(0, len(rows), {"data": ShardFile(FileInfo("x", len(data), {}), None)})
    asked = np.array([2, 0, 1, 2, 3])
    for column in columns:
        expected = [column.encoding.encode(row[column.name]) for row in rows]
        sizes = MDS().open_header(info, data, columns).sizes(column)
        if ("z", "bytes") in more and column.name != "a":
            assert sizes is None
        else:
            assert sizes.tolist() == [len(value) for value in expected]
        zeros, whole = np.zeros(5, np.int64), np.full(5, len(data))
        starts, sizes = (
            MDS()
            .multi_shard_reader(columns)
            .values(GatherBuffer(data), zeros, whole, asked, column)
        )
        found = [bytes(data[at : at + size]) for at, size in zip(starts, sizes, strict=True)]
        assert found == [expected[row] for row in asked]
