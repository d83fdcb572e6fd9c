from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import numpy as np
import pytest
from streamplug_testing.equality import same
from streamplug_testing.samples import pieces_of

from streamplug.builtin.encodings.plain import Str
from streamplug.builtin.mds import MDS
from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DecodeError,
    EncodeError,
    EncodeTypeError,
)
from streamplug.interfaces import (
    Column,
    Encoding,
    ShardFile,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WriteSettings,
)
from streamplug.plugin import make
from streamplug.types import FileInfo

SPECS = {"text": "str", "id": "int", "tag": "bytes"}


def columns(specs: dict[str, str]) -> list[Column]:
    return [Column(name, spec, make("encoding", spec)) for name, spec in specs.items()]


def writer(specs: dict[str, str], **settings: Any) -> ShardWriter:
    given = {"compression": None, "hashes": (), "size_limit": None, **settings}
    return MDS().writer(columns(specs), WriteSettings(**given))


def shard(specs: dict[str, str], rows: list[dict[str, Any]]) -> bytes:
    it = writer(specs)
    encoded = [it.encode(row) for row in rows]
    sizes = np.array([len(row) for row in encoded], np.int64)
    return b"".join(bytes(part) for part in it.assemble(encoded, sizes)["data"])


def reader(data: bytes, samples: int, specs: dict[str, str]) -> ShardReader:
    file = ShardFile(FileInfo("shard.mds", len(data), {}), None)
    info = ShardInfo(0, samples, {"data": file})
    return MDS().open(info, {"data": np.frombuffer(data, np.uint8)}, stored(specs))


def stored(specs: dict[str, str]) -> list[Column]:
    return sorted(columns(specs), key=lambda column: column.name)


ROWS = [
    {"id": 1, "tag": b"\x01\x02", "text": "one"},
    {"id": -2, "tag": b"", "text": ""},
    {"id": 3, "tag": b"\xff" * 5, "text": "drei ü"},
]
DATA = shard(SPECS, ROWS)
HEADER = 4 * 5


def patched(at: int, value: int) -> bytes:
    return DATA[:at] + struct.pack("<I", value) + DATA[at + 4 :]


def test_a_shard_byte_by_byte():
    config = (
        b'{"column_encodings": ["int", "str"], "column_names": ["a", "b"], "column_sizes": [8, null],'
        b' "compression": null, "format": "mds", "hashes": [], "size_limit": null, "version": 2}'
    )
    start = 16 + len(config)
    assert shard({"b": "str", "a": "int"}, [{"a": 5, "b": "xyz"}, {"b": "", "a": -1}]) == (
        struct.pack("<4I", 2, start, start + 15, start + 27)
        + config
        + struct.pack("<Iq", 3, 5)
        + b"xyz"
        + struct.pack("<Iq", 0, -1)
    )


def test_what_the_writer_was_given_lies_in_the_shard():
    it = writer({"a": "int"}, compression="gz:5", hashes=("sha1",), size_limit=1000)
    data = b"".join(it.assemble([], np.array([], np.int64))["data"])
    assert b'"compression": "gz:5"' in data
    assert b'"hashes": ["sha1"]' in data
    assert b'"size_limit": 1000' in data
    assert len(data) == it.base_size
    assert it.entry()["column_names"] == ["a"]


def test_rows_and_batches_are_read():
    it = reader(DATA, 3, SPECS)
    assert len(it) == 3
    assert [it.row(i, stored(SPECS)) for i in range(3)] == ROWS
    ids, tags, texts = it.take(np.array([2, 0, 2, 1]), stored(SPECS))
    assert ids.tolist() == [3, 1, 3, -2]
    assert tags == [b"\xff" * 5, b"\x01\x02", b"\xff" * 5, b""]
    assert texts == ["drei ü", "one", "drei ü", ""]


def test_columns_are_chosen_and_ordered():
    it = reader(DATA, 3, SPECS)
    wanted = [c for name in ("text", "id") for c in stored(SPECS) if c.name == name]
    assert it.row(0, wanted) == {"id": 1, "text": "one"}
    texts, ids = it.take(np.array([1, 2]), wanted)
    assert (texts, ids.tolist()) == (["", "drei ü"], [-2, 3])
    assert it.row(0, stored(SPECS)) == ROWS[0]
    assert it.take(np.array([0]), []) == []


def test_columns_that_are_not_asked_for_are_not_decoded():
    class Broken(Encoding):
        def encode(self, value: Any) -> bytes:
            raise NotImplementedError

        def decode(self, data: memoryview) -> Any:
            raise RuntimeError("touched")

    broken = [
        Column(c.name, c.spec, Broken() if c.name == "tag" else c.encoding) for c in stored(SPECS)
    ]
    file = ShardFile(FileInfo("shard.mds", len(DATA), {}), None)
    it = MDS().open(
        ShardInfo(0, 3, {"data": file}), {"data": np.frombuffer(DATA, np.uint8)}, broken
    )
    wanted = [column for column in broken if column.name != "tag"]
    assert it.row(0, wanted) == {"id": 1, "text": "one"}
    assert len(it.take(np.array([0, 1]), wanted)) == 2
    with pytest.raises(DecodeError, match=r"^sample 1, column 'tag': RuntimeError: touched$"):
        it.row(1, broken)
    with pytest.raises(DecodeError, match=r"^sample 1, column 'tag': RuntimeError: touched$"):
        it.take(np.array([1]), broken)


def test_samples_lie_at_their_byte_ranges():
    it = reader(DATA, 3, SPECS)
    ranges = [it.byte_range(i) for i in range(3)]
    assert [stop - start for start, stop in ranges] == [8 + 8 + 5, 8 + 8, 8 + 8 + 12]
    assert ranges[0][1] == ranges[1][0]
    assert ranges[-1][1] == len(DATA)


def test_an_empty_shard_is_read():
    data = shard(SPECS, [])
    it = reader(data, 0, SPECS)
    assert len(it) == 0
    assert [len(values) for values in it.take(np.array([], np.int64), stored(SPECS))] == [0, 0, 0]


@pytest.mark.parametrize("size", [0, 1, 3, 4, HEADER - 1])
def test_a_shard_that_ends_in_its_header_is_refused(size):
    with pytest.raises(CorruptShardError, match=rf"^{size} bytes cannot hold the 3 samples"):
        reader(DATA[:size], 3, SPECS)


@pytest.mark.parametrize("count", [0, 2, 4, 1 << 31, (1 << 32) - 1])
def test_another_number_of_samples_is_refused(count):
    with pytest.raises(CorruptShardError) as caught:
        reader(patched(0, count), 3, SPECS)
    assert str(caught.value) == f"it holds {count} samples, the index says 3"


@pytest.mark.parametrize("size", [HEADER, HEADER + 50, len(DATA) - 1])
def test_a_truncated_shard_is_refused(size):
    with pytest.raises(CorruptShardError, match=rf"of a file of {size} bytes"):
        reader(DATA[:size], 3, SPECS)


def test_a_longer_shard_is_refused():
    with pytest.raises(CorruptShardError, match=r"its samples span bytes"):
        reader(DATA + b"\0", 3, SPECS)


@pytest.mark.parametrize("first", [0, 4, HEADER - 1])
def test_a_first_sample_inside_the_header_is_refused(first):
    with pytest.raises(CorruptShardError, match=rf"its samples span bytes {first} to"):
        reader(patched(4, first), 3, SPECS)


@pytest.mark.parametrize(("number", "value"), [(1, 0), (1, 20), (2, 30), (2, (1 << 32) - 1)])
def test_offsets_that_do_not_increase_are_refused(number, value):
    with pytest.raises(CorruptShardError, match=r"ends before it begins|do not hold the columns"):
        reader(patched(4 + 4 * number, value), 3, SPECS)


def test_an_offset_beyond_the_end_is_refused():
    with pytest.raises(CorruptShardError, match=r"sample 1 ends before it begins"):
        reader(patched(8, len(DATA) + 1000), 3, SPECS)
    with pytest.raises(CorruptShardError, match=r"of a file of"):
        reader(patched(16, len(DATA) + 1), 3, SPECS)


def test_a_sample_too_short_for_its_columns_is_refused():
    start = struct.unpack_from("<I", DATA, 4)[0]
    with pytest.raises(CorruptShardError) as caught:
        reader(patched(8, start + 15), 3, SPECS)
    assert str(caught.value) == "sample 0: its 15 bytes do not hold the columns id, tag, text"


def test_fixed_samples_of_another_size_are_refused():
    specs = {"a": "int32", "b": "uint8"}
    data = shard(specs, [{"a": 1, "b": 2}] * 3)
    assert reader(data, 3, specs).row(2, stored(specs)) == {"a": 1, "b": 2}
    start = struct.unpack_from("<I", data, 4)[0]
    damaged = data[:8] + struct.pack("<I", start + 4) + data[12:]
    with pytest.raises(CorruptShardError, match=r"sample 0: its 4 bytes do not hold the columns"):
        reader(damaged, 3, specs)


@pytest.mark.parametrize("length", [1, 4, 100, (1 << 32) - 1])
def test_heads_that_do_not_add_up_are_refused(length):
    second = struct.unpack_from("<I", DATA, 8)[0]
    it = reader(patched(second, length), 3, SPECS)
    assert it.row(0, stored(SPECS)) == ROWS[0]
    with pytest.raises(CorruptShardError, match=r"^sample 1: its 16 bytes do not hold the columns"):
        it.row(1, stored(SPECS))
    with pytest.raises(CorruptShardError, match=r"^sample 1: its 16 bytes do not hold the columns"):
        it.take(np.array([2, 1, 0]), stored(SPECS))


def test_text_that_is_not_utf_8_names_sample_and_column():
    data = DATA.replace("drei ü".encode(), b"drei \xff\xfe")
    it = reader(data, 3, SPECS)
    expected = r"^sample 2, column 'text': not UTF-8: invalid start byte at byte 5$"
    with pytest.raises(DecodeError, match=expected):
        it.row(2, stored(SPECS))
    with pytest.raises(DecodeError, match=expected):
        it.take(np.array([0, 1, 2]), stored(SPECS))


def test_a_batch_that_fails_as_a_whole_only_names_the_column():
    class Batchless(Encoding):
        def encode(self, value: Any) -> bytes:
            raise NotImplementedError

        def decode(self, data: memoryview) -> Any:
            return bytes(data)

        def decode_batch(self, buffer: Any, starts: Any, sizes: Any) -> Any:
            raise RuntimeError("too many")

    chosen = [Column("tag", "x", Batchless())]
    with pytest.raises(DecodeError, match=r"^column 'tag': RuntimeError: too many$"):
        reader(DATA, 3, SPECS).take(np.array([0, 1]), chosen)


class Odd(Encoding):
    """Announces a size, and gives other bytes."""

    size = 4

    def encode(self, value: Any) -> bytes:
        if value is None:
            raise AttributeError("nothing to encode")
        return bytes(value)

    def decode(self, data: memoryview) -> Any:
        return bytes(data)


def test_an_encoding_that_breaks_its_own_size_is_refused():
    it = MDS().writer([Column("x", "odd", Odd())], WriteSettings(None, (), None))
    with pytest.raises(EncodeError, match=r"^column 'x': takes values of 4 bytes, got 5$"):
        it.encode({"x": 5})
    with pytest.raises(EncodeError, match=r"^column 'x': takes values of 4 bytes each$"):
        it.encode_batch({"x": [4, 5]})
    with pytest.raises(EncodeError, match=r"^column 'x': takes values of 4 bytes each$"):
        it.encode_batch({"x": [3, 5]})
    data, sizes = it.encode_batch({"x": [4, 4]})
    assert (bytes(data), sizes.tolist()) == (bytes(8), [4, 4])


@pytest.mark.parametrize("others", [{}, {"n": "int"}, {"s": "str"}])
def test_an_encoding_that_returns_fewer_values_of_a_batch_is_refused(others):
    class Omitting(Str):
        def encode_batch(self, values: Any) -> list[bytes]:
            return [value.encode() for value in values if value]

    more = columns(others)
    it = MDS().writer([Column("x", "omitting", Omitting()), *more], WriteSettings(None, (), None))
    batch = {"x": ["a", "", "b"], "n": [1, 2, 3], "s": ["1", "2", "3"]}
    expected = r"^column 'x': encode_batch of Omitting returned 2 values for 3$"
    with pytest.raises(EncodeError, match=expected):
        it.encode_batch({name: batch[name] for name in ("x", *others)})


class Whatever(Str):
    """Stores what it is given, which should be bytes."""

    def encode(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("count", [3, 300])  # a row in one piece, or in several
def test_a_buffer_that_an_encoding_returns_is_stored_by_its_bytes(count):
    numbers = np.arange(count, dtype="<f4")
    it = MDS().writer([Column("x", "any", Whatever())], WriteSettings(None, (), None))
    expected, size = it.encode({"x": numbers.tobytes()}), 4 + 4 * count
    reused = bytearray(numbers.tobytes())
    for value in (memoryview(numbers), numbers, reused):
        pieces, counted = it.encode_pieces({"x": value})
        data, sizes = it.encode_batch({"x": [value, value]})
        if value is reused:
            reused[:] = bytes(len(reused))
        assert (b"".join(pieces), counted) == (expected, size)
        assert b"".join(pieces_of(data)) == 2 * expected
        assert sizes.tolist() == [size, size]


class Floats(Encoding):
    """Two float32 without a conversion to bytes."""

    size = 8

    def encode(self, value: Any) -> Any:
        return np.array(value, "<f4")

    def encode_batch(self, values: Any) -> Any:
        return self.encode(values)

    def decode(self, data: memoryview) -> Any:
        return np.frombuffer(data, "<f4")


def test_arrays_that_an_encoding_of_fixed_size_returns_are_counted_in_bytes():
    it = MDS().writer([Column("x", "floats", Floats())], WriteSettings(None, (), None))
    assert it.encode({"x": [1, 2]}) == struct.pack("<2f", 1, 2)
    with pytest.raises(EncodeError, match=r"^column 'x': takes values of 8 bytes, got 32$"):
        it.encode({"x": range(8)})
    expected = r"^column 'x': encode_batch of Floats returned float32; expected uint8$"
    with pytest.raises(EncodeError, match=expected):
        it.encode_batch({"x": [range(8)] * 2})


class Nothing(Encoding):
    """A value of no bytes, such as an empty tensor."""

    size = 0

    def encode(self, value: Any) -> bytes:
        return b""

    def decode(self, data: memoryview) -> Any:
        return len(data)


@pytest.mark.parametrize("long", ["", "long" * 500])  # rows in one piece, or in several
def test_values_of_no_bytes_are_written_in_batches(long):
    stored_columns = [Column("a", "nothing", Nothing()), *columns({"b": "str"})]
    it = MDS().writer(stored_columns, WriteSettings(None, (), None))
    texts = [f"{number}{long}" for number in range(3)]
    data, sizes = it.encode_batch({"a": [None] * 3, "b": texts})
    rows = [it.encode({"a": None, "b": text}) for text in texts]
    assert (b"".join(pieces_of(data)), sizes.tolist()) == (b"".join(rows), list(map(len, rows)))


class Table(dict[str, Any]):
    """Columns by name, as in a data frame of pandas."""

    def keys(self) -> Any:
        return np.array(list(super().keys()))


def test_names_of_columns_may_be_an_array():
    it = writer({"a": "int", "b": "str"})
    data, sizes = it.encode_batch(Table(a=[1, 2], b=["x", "yy"]))
    rows = [it.encode(Table(a=1, b="x")), it.encode({"a": 2, "b": "yy"})]
    assert (b"".join(pieces_of(data)), sizes.tolist()) == (b"".join(rows), list(map(len, rows)))
    with pytest.raises(EncodeError, match=r"missing: \['b'\]; unknown: \['c', 'd'\]$"):
        it.encode_batch(Table(a=[1], c=[2], d=[3]))


@pytest.mark.parametrize("value", ["text", 5, np.float32(1), None])
def test_what_an_encoding_returns_instead_of_bytes_is_refused(value):
    it = MDS().writer([Column("x", "any", Whatever())], WriteSettings(None, (), None))
    expected = f"^column 'x': its encoding returned {type(value).__name__}: .*; expected bytes"
    with pytest.raises(EncodeTypeError, match=f"{expected}$"):
        it.encode({"x": value})
    with pytest.raises(EncodeTypeError, match=rf"{expected} \(value 1 of the batch\)$"):
        it.encode_batch({"x": [b"", value]})


def test_any_error_of_an_encoding_names_the_column():
    it = MDS().writer([Column("x", "odd", Odd())], WriteSettings(None, (), None))
    expected = r"^column 'x': cannot encode NoneType: AttributeError: nothing to encode"
    with pytest.raises(EncodeTypeError, match=f"{expected}$"):
        it.encode({"x": None})
    with pytest.raises(EncodeTypeError, match=rf"{expected} \(value 1 of the batch\)$"):
        it.encode_batch({"x": [4, None]})


def test_the_value_of_a_batch_that_is_refused_is_named():
    numbers = np.array([1, 2, 300, 4, 500])
    for values in (numbers, numbers.tolist()):
        with pytest.raises(EncodeError, match=r"300\)? \(value 2 of the batch\)$"):
            writer({"x": "int8"}).encode_batch({"x": values})

    class Wholly(Str):
        def encode_batch(self, values: Any) -> list[bytes]:
            raise EncodeError("these do not go together")

    it = MDS().writer([Column("x", "wholly", Wholly())], WriteSettings(None, (), None))
    with pytest.raises(EncodeError, match=r"^column 'x': these do not go together$"):
        it.encode_batch({"x": ["a", "b"]})


def test_values_of_4_gib_are_refused():
    class Huge(Encoding):
        def encode(self, value: Any) -> Any:
            return Pretended()

        def decode(self, data: memoryview) -> Any:
            raise NotImplementedError

    class Pretended(bytes):
        def __len__(self) -> int:
            return 1 << 32

    it = MDS().writer([Column("x", "huge", Huge())], WriteSettings(None, (), None))
    with pytest.raises(EncodeError, match=r"4 GiB"):
        it.encode({"x": 0})
    with pytest.raises(EncodeError, match=r"4 GiB"):
        it.encode_batch({"x": [0]})


def test_the_format_takes_no_argument():
    with pytest.raises(ConfigError, match=r"MDS takes no argument, got '3'"):
        make("format", "mds:3")


WIDE = {"a": "int", "b": "float32", "image": "bytes", "c": "uint16", "t": "ndarray:int16:3"}
WIDE |= {"text": "str", "z": "json"}


@pytest.mark.parametrize("count", range(1, 8))
def test_single_rows_are_those_of_batches_whatever_the_columns(count):
    names = sorted(WIDE)
    for first in range(len(names) - count + 1):
        specs = {name: WIDE[name] for name in names[first : first + count]}
        rows = [
            {
                "a": -number,
                "b": 0.5 * number,
                "image": bytes(number),
                "c": number,
                "t": np.full(3, number, np.int16),
                "text": "ü" * number,
                "z": [number],
            }
            for number in range(5)
        ]
        it = reader(shard(specs, [{name: row[name] for name in specs} for row in rows]), 5, specs)
        for chosen in (stored(specs), stored(specs)[::2], stored(specs)[-1:]):
            read, taken = it.row_reader(chosen), it.take(np.arange(5), chosen)
            split = [c.encoding.unbatch(values) for c, values in zip(chosen, taken)]
            for number in range(5):
                expected = {c.name: values[number] for c, values in zip(chosen, split)}
                assert same(read(number), expected)
                assert list(read(number)) == [c.name for c in chosen]


def test_nan_keeps_its_bits_in_a_single_row():
    specs = {"x": "float32", "text": "str"}
    nan = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    data = shard(specs, [{"x": each, "text": "ab"} for each in nan])
    # The encoder may set a bit of what signals; so they are put into the file.
    at = struct.unpack_from("<2I", data, 4)
    patched_ = bytearray(data)
    for start, each in zip(at, nan):
        patched_[start + 6 : start + 10] = each.tobytes()
    it = reader(bytes(patched_), 2, specs)
    assert [it.row(i, stored(specs))["x"].tobytes() for i in range(2)] == [e.tobytes() for e in nan]


def test_what_reads_rows_does_not_keep_the_file_alive():
    data = np.frombuffer(bytearray(DATA), np.uint8)
    file = ShardFile(FileInfo("shard.mds", len(DATA), {}), None)
    it = MDS().open(ShardInfo(0, 3, {"data": file}), {"data": data}, stored(SPECS))
    gone = weakref.ref(data)
    read = it.row_reader(stored(SPECS))
    assert same(read(1), ROWS[1])
    del it, data
    assert same(read(2), ROWS[2])
    gc.disable()
    try:
        del read
        assert gone() is None
    finally:
        gc.enable()


def test_names_of_columns_are_never_taken_for_code():
    specs = {"'}, __import__('os').abort()": "int", "\n": "str", "p0": "bytes"}
    row = {"'}, __import__('os').abort()": 3, "\n": "x", "p0": b"y"}
    assert reader(shard(specs, [row]), 1, specs).row(0, stored(specs)) == row


def test_an_encoding_with_a_decode_of_its_own_is_read_by_it():
    class Shout(Str):
        def decode(self, data: memoryview) -> str:
            return super().decode(data).upper()

    columns_ = [Column("a", "str", Shout())]
    file = ShardFile(FileInfo("shard.mds", 0, {}), None)
    data = np.frombuffer(shard({"a": "str"}, [{"a": "quiet"}]), np.uint8)
    it = MDS().open(ShardInfo(0, 1, {"data": file}), {"data": data}, columns_)
    assert it.row(0, columns_) == {"a": "QUIET"}


def test_large_values_are_not_copied():
    it, large = writer({"a": "bytes", "b": "int"}), bytes(5000)
    parts, size = it.encode_pieces({"a": large, "b": 1})
    assert any(part is large for part in parts)
    assert (size, b"".join(parts)) == (5012, it.encode({"a": large, "b": 1}))
    rows, sizes = it.encode_batch({"a": [large, b""], "b": [1, 2]})
    assert any(part is large for part in rows[0])
    assert sizes.tolist() == [5012, 12]


def test_arrays_may_be_changed_after_they_were_encoded():
    values = np.arange(6000, dtype=np.uint16).reshape(2, 3000)
    for specs in ({"t": "ndarray:uint16:3000"}, {"t": "ndarray:uint16:3000", "s": "str"}):
        it, mine = writer(specs), values.copy()
        batch = {"t": mine, "s": ["a", "b"]}
        data, _ = it.encode_batch({name: batch[name] for name in specs})
        mine[:] = 0
        expected = [
            it.encode({n: v for n, v in (("t", t), ("s", s)) if n in specs})
            for t, s in zip(values, "ab")
        ]
        flat = data if isinstance(data, memoryview) else b"".join(b"".join(row) for row in data)
        assert bytes(flat) == b"".join(expected)
