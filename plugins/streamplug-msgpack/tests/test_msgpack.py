from __future__ import annotations

import struct
from collections import OrderedDict
from datetime import datetime, timedelta, timezone

import msgpack
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from streamplug_testing.encoding import EncodingTests
from streamplug_testing.memory import takes_less

from streamplug.errors import DecodeError, EncodeError, EncodeTypeError
from streamplug.plugin import make

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


def arrays():
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    return hnp.arrays(st.sampled_from(DTYPES), shapes)


def scalars():
    return hnp.arrays(st.sampled_from(DTYPES), ()).map(lambda array: array[()])


LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=9)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | arrays() | scalars()
    | st.datetimes(timezones=st.just(timezone.utc))
)  # fmt: skip
KEYS = st.text("abc", max_size=3) | st.integers() | st.binary(max_size=3) | st.none()


class TestMsgpack(EncodingTests):
    spec = "msgpack"
    wrong = ({1, 2}, 1j, object(), MOMENT.replace(tzinfo=None), np.str_("a"), OrderedDict(a=1))
    refused = (
        {(1, 2): 3},
        "\ud800",
        [np.array(["a"])],
        {"a": [np.datetime64("2024-01-01")]},
        np.ma.array([1]),
        np.longdouble(1),
        np.zeros(1, "i4,f4"),
        msgpack.ExtType(9, b"x"),
        [np.zeros(1), {"a": msgpack.ExtType(3, b"\x01")}],
        msgpack.Timestamp(1 << 40),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        [1 << 64, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))],
    )
    golden = (
        ({"a": [1, None, True], 2: b"\xff"}, "82a1619301c0c302c401ff"),
        (1.5, "cb3ff8000000000000"),
        ((1 << 64) - 1, "cfffffffffffffffff"),
        (1 << 64, "c70903000000000000000001"),
        (-(1 << 63) - 1, "c70903ffffffffffffff7fff"),
        (np.array([1, -2], np.int16), "c71101033c69320102000000000000000100feff"),
        (np.zeros((0,), np.complex128), "c70e01043c633136010000000000000000"),
        (np.array(True), "c70601037c62310001"),
        (np.float32(1.5), "c70902033c6634000000c03f"),
        (MOMENT, "d7ffa1dcd42065937d25"),
    )

    def values(self):
        return st.recursive(
            LEAVES,
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
            max_leaves=6,
        )

    @pytest.mark.parametrize(
        ("value", "decoded"),
        [
            ((1, (2, [3])), [1, [2, [3]]]),
            (bytearray(b"ab"), b"ab"),
            (
                datetime(2024, 1, 2, 5, tzinfo=timezone(timedelta(hours=2))),
                MOMENT.replace(hour=3, minute=0, second=0, microsecond=0),
            ),
        ],
    )
    def test_what_comes_back_as_something_else(self, value, decoded):
        encoding = make("encoding", "msgpack")
        found = encoding.decode(memoryview(encoding.encode(value)))
        assert (type(found), found) == (type(decoded), decoded)

    @pytest.mark.parametrize("kind", DTYPES)
    def test_arrays_of_any_order_come_back_little_endian(self, kind):
        array = np.ones((2, 3), np.dtype(kind).newbyteorder(">")).T
        encoding = make("encoding", "msgpack")
        decoded = encoding.decode(memoryview(encoding.encode([array])))[0]
        assert decoded.dtype == np.dtype(kind).newbyteorder("<")
        assert decoded.tolist() == array.tolist()
        assert decoded.flags.writeable

    def test_refusal_names_the_dtype(self):
        with pytest.raises(EncodeTypeError, match=r"takes arrays of bool, .* got ndarray of <U1"):
            make("encoding", "msgpack").encode({"a": np.array(["a"])})

    def test_endless_values_are_refused(self):
        endless = []
        endless.append(endless)
        with pytest.raises(EncodeError, match="cannot hold"):
            make("encoding", "msgpack").encode(endless)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "not msgpack"),
            (b"\xc1", "not msgpack"),
            (b"\x01\x02", "ExtraData"),
            (b"\xa1\xff", "UnicodeDecodeError"),
            (b"\x81\x90\x01", "unhashable"),
            (b"\xdd\xff\xff\xff\xff", "not msgpack"),
            (b"\xc9\xff\xff\xff\xff\x01", "not msgpack"),
            (b"\x91" * 1_000_000, "StackError"),
            (msgpack.packb(msgpack.Timestamp(1 << 60)), "OverflowError"),
            (msgpack.packb(msgpack.ExtType(9, b"")), "extension type 9 has no meaning"),
            (msgpack.packb(msgpack.ExtType(1, b"")), "not an array: IndexError"),
            (msgpack.packb(msgpack.ExtType(1, b"\x02|O\x00")), "not an array: KeyError"),
            (msgpack.packb(msgpack.ExtType(1, b"\x03<f4\xff")), "not an array: error"),
            (msgpack.packb(msgpack.ExtType(1, b"\x03<f4\x00abc")), "has not 3 bytes"),
            (
                msgpack.packb(msgpack.ExtType(1, b"\x03|u1\x02" + struct.pack("<2Q", 1 << 63, 2))),
                "has not 0 bytes",
            ),
            (msgpack.packb(msgpack.ExtType(2, b"\x03|u1\x01" + bytes(8))), "a scalar has no shape"),
        ],
    )
    def test_damaged_values_are_refused(self, data, reason):
        with pytest.raises(DecodeError, match=reason):
            make("encoding", "msgpack").decode(memoryview(data))

    def test_other_readers_can_read_it(self):
        value = {"text": "é", "numbers": [1, -2.5], "bytes": b"\0"}
        assert msgpack.unpackb(make("encoding", "msgpack").encode(value)) == value


def test_counts_of_nested_lists_are_checked_before_they_are_allocated():
    head = b"\xdd" + struct.pack(">I", 1 << 20)
    bomb = head * 500 + bytes(1 << 20)

    def act():
        with pytest.raises(DecodeError, match="it ends early"):
            make("encoding", "msgpack").decode(memoryview(bomb))

    assert takes_less(1 << 23, act)  # 500 lists of a million items
