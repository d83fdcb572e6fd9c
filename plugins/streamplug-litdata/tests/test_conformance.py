"""Chunks and values do what those of every format and encoding must.

The format only reads, so that what the tests of formats read is laid out here.
"""

from __future__ import annotations

import struct
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from streamplug_litdata.format import LitData
from streamplug_litdata.nested import JsonItem, Tree
from streamplug_litdata.specs import Options, Spec
from streamplug_litdata.values import Array, Bool, Float, Tensor, Vector
from streamplug_testing import EncodingTests, FormatTests
from streamplug_testing.equality import same
from streamplug_testing.format import make_encoding

from streamplug.errors import DecodeError, EncodeError
from streamplug.interfaces import ShardWriter, WriteSettings
from streamplug.interfaces.encoding import MAX_VALUE_BYTES
from streamplug.plugin import make

TREE = str(Spec({"dict": {"x": "int", "y": {"tuple": ["str", "float"]}}}))
COLUMNS = {
    "text": "str",
    "number": "int",
    "vector": "no_header_numpy:4",
    "matrix": "numpy",
    "inner": TREE,
}


def encoding_of(name, spec):
    return Spec.parse(spec).encoding(name, Options(), make_encoding)


class Writer(ShardWriter):
    """Lays out items, of which each is what several leaves of one column are."""

    base_size, row_overhead = 8, 4

    def __init__(self, columns, settings, layout):
        self._columns, self._settings, self._layout = columns, settings, layout

    def encode(self, sample):
        return b"".join(self.encode_pieces(sample)[0])

    def encode_pieces(self, sample):
        if sample.keys() != {column.name for column in self._columns}:
            wanted = [column.name for column in self._columns]
            raise EncodeError(f"columns are {wanted}, got {list(sample)}")
        sizes, parts = [], []
        for column in self._columns:
            try:
                data = column.encoding.encode(sample[column.name])
            except EncodeError as error:
                raise EncodeError(f"column {column.name!r}: {error}") from error
            if isinstance(column.encoding, Tree):
                sizes.append(data[:12])
                parts.append(data[12:])
            else:
                sizes.append(struct.pack("<I", len(data)))
                parts.append(data)
        row = b"".join((*sizes, *parts))
        return (row,), len(row)

    def encode_batch(self, columns):
        if len(set(map(len, columns.values()))) > 1:
            raise EncodeError("columns differ in length")
        names = list(columns)
        rows = [self.encode_pieces(dict(zip(names, row))) for row in zip(*columns.values())]
        missing = {column.name for column in self._columns} ^ set(names)
        if missing:
            raise EncodeError(f"columns {missing}")
        return [parts for parts, _ in rows], np.array([size for _, size in rows], np.int64)

    def assemble(self, parts, sizes):
        body = b"".join(parts)
        if self._layout == "frames":
            return {"data": [_frames(body, sizes)]}
        begin = 4 * (len(sizes) + 2)
        offsets = np.concatenate([[len(sizes), begin], begin + np.cumsum(sizes)]).astype("<u4")
        return {"data": [offsets.tobytes(), body]}

    def entry(self):
        return {
            "format": f"litdata:{self._layout}",
            "version": 2,
            "compression": self._settings.compression,
            "columns": [[column.name, column.spec] for column in self._columns],
        }


def _frames(body, sizes, length=3):
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype("<u4")
    firsts = range(0, len(sizes), length)
    table, content = b"", b""
    begin = 24 + 4 * len(edges) + 24 * len(firsts)
    for first in firsts:
        last = min(first + length, len(sizes))
        plain = body[edges[first] : edges[last]]
        packed = make("compression", "zstd").compress(plain)
        place = begin + len(content)
        table += struct.pack("<IIQII", first, last - first, place, len(packed), len(plain))
        content += packed
    head = struct.pack("<8sHHIII", b"LDFZ01\0\0", 1, 0, len(sizes), length, len(firsts))
    return head + edges.tobytes() + table + content


class Items(LitData):
    """What reads items, and writes them for these tests."""

    lies = "items"

    @classmethod
    def from_spec(cls, argument):
        assert argument is None
        return cls(layout=cls.lies)

    def writer(self, columns, settings):
        return Writer(columns, settings, self.lies)


class Frames(Items):
    lies = "frames"


class ChunkTests(FormatTests):
    columns: ClassVar[dict[str, str]] = COLUMNS

    def writer(self, compression=None):
        columns = self.format().columns(
            {"columns": list(map(list, self.columns.items()))}, make_encoding
        )
        return self.format().writer(columns, WriteSettings(compression, ("xxh64",), 1 << 20))

    def rows(self, *, min_size=0):
        texts = st.text(max_size=9)
        inner = st.fixed_dictionaries(
            {"x": st.integers(-9, 9), "y": st.tuples(texts, st.floats(allow_nan=False))}
        )
        row = st.fixed_dictionaries(
            {
                "text": texts,
                "number": st.integers(-(2**63), 2**63 - 1),
                "vector": hnp.arrays("u1", st.integers(0, 9)),
                "matrix": hnp.arrays("<f4", hnp.array_shapes(min_dims=0, min_side=0, max_side=3)),
                "inner": inner,
            }
        )
        return st.lists(row, min_size=min_size, max_size=8)

    def some_rows(self, count=7):
        return [
            {
                "text": f"sample {i}",
                "number": i,
                "vector": np.full(i, i, "u1"),
                "matrix": np.full((i, 2), i, "<f4"),
                "inner": {"x": i, "y": (str(i), i / 2)},
            }
            for i in range(1, count + 1)
        ]


class TestItems(ChunkTests):
    cls = Items


class TestFrames(ChunkTests):
    cls = Frames
    deviations: ClassVar[dict[str, str]] = {
        "test_size_of_a_shard_is_known_beforehand": "its frames are not known before they are full"
    }

    @pytest.fixture(autouse=True)
    def _needs_zstd(self):
        pytest.importorskip("streamplug_zstandard")


# -- values -------------------------------------------------------------------------------


class ValueTests(EncodingTests):
    bad_arguments = ()

    def encoding(self):
        return self.make()


class TestFloat(ValueTests):
    cls = make = Float
    wrong = ("1", None, b"1")

    def values(self):
        return st.floats()


class TestBool(ValueTests):
    cls = make = Bool
    wrong = (1, "x", None)

    def values(self):
        return st.booleans()


class TestVector(ValueTests):
    cls = Vector
    wrong = ([1], np.zeros(1, "u2"), None)
    refused = (np.zeros((2, 2), "<i4"),)

    def make(self):
        return Vector(np.dtype("<i4"))

    def values(self):
        return hnp.arrays("<i4", st.integers(0, 5))


class TestArray(ValueTests):
    cls = make = Array
    wrong = ([1], "x", np.array([object()]))

    def values(self):
        kinds = st.sampled_from(["<i2", "<f4", "<f8", "?", "<c8"])
        return hnp.arrays(kinds, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))


def test_tensors_are_as_newer_and_as_older_releases_wrote_them():
    tensor = np.arange(6, dtype="<f4").reshape(2, 3)
    newer = Tensor().encode(tensor)
    assert newer[:16] == struct.pack(">4I", 1, 2, 2, 3)
    older = struct.pack("<4I", 1, 2, 2, 3) + newer[16:]
    for stored in (newer, older):
        assert same(Tensor().decode(memoryview(stored)), tensor)
    with pytest.raises(DecodeError, match="no array"):
        Tensor().decode(memoryview(older[:-1]))


class TestJson(ValueTests):
    cls = make = JsonItem
    wrong = ()
    refused = (object(), {1, 2}, 10**5000)

    def values(self):
        texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
        return st.lists(st.none() | st.booleans() | st.integers() | texts, max_size=4)


def _nested_lists(body, count):
    """Return a dict of lists, each of which has the same bytes."""
    items = b"".join(struct.pack("<I", 4) + b"%04d" % n + body for n in range(count))
    return b"\x05" + struct.pack("<I", count) + items


@pytest.mark.parametrize(
    "body",
    [
        b"\x06" + struct.pack("<2I", 2000, 0),  # dicts without keys
        b"\x06" + struct.pack("<2I", 3000, 1) + struct.pack("<I", 1) + b"a",
        b"\x06" + struct.pack("<2I", 1, 1 << 31),
        b"\x04" + struct.pack("<I", 2000),
        b"\x05" + struct.pack("<I", 2000),
    ],
)
def test_more_items_than_bytes_follow_are_refused(body):
    decode = JsonItem().decode
    with pytest.raises(DecodeError, match=r"\d+ (items in the|dicts have no keys)"):
        decode(memoryview(_nested_lists(body, 100)))


def test_lists_of_dicts_in_the_binary_form_are_read():
    keys = struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b"
    records = b"\x10\x14\x01" + b"\x12" + struct.pack("<q", 7) + b"\x10"
    body = b"\x06" + struct.pack("<2I", 2, 2) + keys + records
    expected = [{"a": None, "b": True}, {"a": 7, "b": None}]
    found = JsonItem().decode(memoryview(_nested_lists(body, 2)))
    assert found == {"0000": expected, "0001": expected}
    empty = _nested_lists(b"\x06" + struct.pack("<2I", 0, 0), 1)
    assert JsonItem().decode(memoryview(empty)) == {"0000": []}


def test_errors_of_leaves_that_are_not_of_the_data_are_raised_as_they_are():
    class Leaf(Bool):
        def decode(self, data):
            raise MemoryError("no memory")

    with pytest.raises(MemoryError, match="no memory"):
        Tree({"x": Leaf()}).decode(memoryview(struct.pack("<I", 1) + b"a"))


def test_the_limit_of_values_is_that_of_the_leaves_of_a_column():
    class Leaf(Bool):
        def decode(self, data):
            return self.max_value_bytes

    plain = Tree({"x": Leaf(), "y": [Leaf()]})
    stored = memoryview(struct.pack("<2I", 1, 1) + b"ab")
    assert plain.with_max_value_bytes(5).decode(stored) == {"x": 5, "y": [5]}
    assert plain.decode(stored) == {"x": MAX_VALUE_BYTES, "y": [MAX_VALUE_BYTES]}


class TestTree(ValueTests):
    cls = Tree
    wrong = ([1], None, {"x": 1})

    def make(self):
        return encoding_of("inner", TREE)

    def values(self):
        inner = st.tuples(st.text(max_size=3), st.floats(allow_nan=False))
        return st.fixed_dictionaries({"x": st.integers(-9, 9), "y": inner})
