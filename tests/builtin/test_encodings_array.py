from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from streamplug_testing.encoding import EncodingTests

from streamplug.errors import ConfigError, DecodeError, EncodeError, EncodeTypeError
from streamplug.plugin import make

CODES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}
BAD_ARGUMENTS = (
    "",
    ":",
    ":2",
    "bool",
    "float",
    "<u2",
    "uint8:",
    "uint8:0",
    "uint8:-1,2",
    "uint8:a",
)
BAD_ARGUMENTS += (
    "uint8:1:2",
    "uint8:2.0",
    "uint8:,",
    "uint8:99999999999",
    "uint64:" + "2," * 64 + "2",
)
NOT_ARRAYS = (1, 1.5, [1, 2], b"bytes", None, np.float32(1), np.ma.array([1]))
UNSUPPORTED = tuple(
    np.zeros(2, kind) for kind in ("?", "c8", "c16", "U3", "S3", "O", "M8[s]", "m8[s]", "u1,i2")
)


def arrays(dtypes=tuple(CODES), shape=None):
    """Arrays of either byte order, in C order, in Fortran order or with gaps."""
    dtypes = st.sampled_from([np.dtype(name).newbyteorder(o) for name in dtypes for o in "<>"])
    if shape is None:
        shape = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    plain = hnp.arrays(dtypes, shape)
    spread = plain.map(lambda array: np.repeat(array[..., None], 2, -1)[..., 0])
    return plain | plain.map(np.asfortranarray) | spread


class Arrays(EncodingTests):
    bad_arguments = BAD_ARGUMENTS
    wrong = (*NOT_ARRAYS, *UNSUPPORTED)

    def decoded(self, value):
        return value.astype(value.dtype.newbyteorder("<"), order="C")


class TestAny(Arrays):
    spec = "ndarray"
    golden = (
        (np.array([1, 2], np.uint8), "0804020102"),
        (np.array([[1, -2]], np.int16), "110801020100feff"),
        (np.array([[1.5], [2]], np.float32), "220802010000c03f00000040"),
        (np.array([258], ">u4"), "20040102010000"),
        (np.array([[1, 2], [3, 4]], np.int8).T, "0908020201030204"),
        (np.zeros((1, 300), np.int8), "090901002c01" + "00" * 300),
        (np.zeros((70_000,), np.uint8), "080670110100" + "00" * 70_000),
        (np.array(1.0), "4200000000000000f03f"),
        (np.zeros((0, 300), np.float16), "120900002c01"),
    )

    def values(self):
        return arrays()


class TestStaticDtype(Arrays):
    spec = "ndarray:float32"
    wrong = (*Arrays.wrong, np.zeros(2), np.zeros(2, np.int32))
    golden = (
        (np.array([[1.5], [2]], np.float32), "0802010000c03f00000040"),
        (np.array([1.5], ">f4"), "04010000c03f"),
    )

    def values(self):
        return arrays(["float32"])


class TestStaticShape(Arrays):
    spec = "ndarray:uint16:2,3"
    wrong = (*Arrays.wrong, np.zeros((2, 3)), np.zeros((2, 3), np.int16))
    refused = tuple(np.zeros(shape, np.uint16) for shape in ((3, 2), (6,), (2, 3, 1), ()))
    golden = (
        (np.arange(6, dtype=np.uint16).reshape(2, 3), "000001000200030004000500"),
        (np.arange(6, dtype=">u2").reshape(3, 2).T, "000002000400010003000500"),
    )

    def values(self):
        return arrays(["uint16"], (2, 3))

    def test_batch_may_be_one_array(self):
        encoding = make("encoding", self.spec)
        batch = np.arange(24, dtype=">u2").reshape(3, 2, 4).transpose(2, 1, 0)
        joined = b"".join(encoding.encode(row) for row in batch)
        assert encoding.encode_batch(batch).tobytes() == joined

    @pytest.mark.parametrize(
        "batch",
        [np.zeros((4, 3, 2), np.uint16), np.ma.zeros((4, 2, 3), np.uint16), np.zeros((4, 2, 3))],
    )
    def test_batch_of_other_arrays_is_refused(self, batch):
        with pytest.raises(EncodeError):
            make("encoding", self.spec).encode_batch(batch)


class TestOneValue(Arrays):
    spec = "ndarray:int64:1"
    golden = ((np.array([-2]), "feffffffffffffff"),)

    def values(self):
        return arrays(["int64"], (1,))


@pytest.mark.parametrize("name", CODES)
def test_dtype_codes(name):
    stored = make("encoding", "ndarray").encode(np.ones(1, name))
    assert stored[0] == CODES[name]
    assert make("encoding", f"ndarray:{name}").encode(np.ones(1, name)) == stored[1:]
    fixed = make("encoding", f"ndarray:{name}:1")
    assert fixed.encode(np.ones(1, name)) == stored[3:]
    assert fixed.size == fixed.dtype.itemsize == np.dtype(name).itemsize


@pytest.mark.parametrize(
    ("largest", "header"),
    [(255, "04ff"), (256, "050001"), (65535, "05ffff"), (65536, "0600000100")],
)
def test_dimensions_take_as_few_bytes_as_the_largest_needs(largest, header):
    encoding = make("encoding", "ndarray:uint8")
    stored = encoding.encode(np.zeros(largest, np.uint8))
    assert stored[: len(header) // 2].hex() == header
    assert encoding.decode(memoryview(stored)).shape == (largest,)


def test_dimensions_of_eight_bytes():
    huge = np.zeros((1 << 32, 0), np.uint8)
    stored = make("encoding", "ndarray:uint8").encode(huge)
    assert stored.hex() == "0b00000000010000000000000000000000"
    assert make("encoding", "ndarray:uint8").decode(memoryview(stored)).shape == huge.shape


@pytest.mark.parametrize("spec", ["ndarray", "ndarray:int16", "ndarray:int16:4"])
def test_decoded_arrays_are_ones_own(spec):
    encoding = make("encoding", spec)
    decoded = encoding.decode(memoryview(encoding.encode(np.arange(4, dtype=np.int16))))
    assert decoded.flags.owndata
    assert decoded.flags.writeable
    decoded[0] = 7


@pytest.mark.parametrize("array", UNSUPPORTED, ids=lambda array: str(array.dtype))
def test_refusal_names_the_dtype_and_those_allowed(array):
    with pytest.raises(EncodeTypeError) as caught:
        make("encoding", "ndarray").encode(array)
    assert str(array.dtype) in str(caught.value)
    assert ", ".join(CODES) in str(caught.value)


def test_bad_dtype_is_refused_with_those_allowed():
    with pytest.raises(ConfigError, match="must be one of " + ", ".join(CODES)):
        make("encoding", "ndarray:bfloat16")


def test_more_dimensions_than_the_layout_has_are_refused():
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("numpy itself has up to 32")
    with pytest.raises(EncodeError, match="up to 63 dimensions, got 64"):
        make("encoding", "ndarray").encode(np.zeros((1,) * 64, np.uint8))
    many = np.zeros((1,) * 63, np.uint8)
    assert make("encoding", "ndarray").encode(many).hex() == "08fc" + "01" * 63 + "00"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an array: it is empty"),
        (b"\x07\x04\x01\x00", r"not an array: it begins with b'\\x07\\x04\\x01\\x00'"),
        (b"\x08", "lacks its shape"),
        (b"\x08\xff" + bytes(10), "cannot have 63 dimensions"),
        (b"\x08\x04\x03ab", r"uint8 \(3,\) has 3 bytes, got 2"),
        (b"\x08\x04\x01ab", r"uint8 \(1,\) has 1 bytes, got 2"),
        (b"\x11\x04\x01a", r"int16 \(1,\) has 2 bytes, got 1"),
        (b"\x08\x0b" + struct.pack("<2Q", 1 << 62, 1 << 62), "has 2126764793255865396646091"),
        (b"\x08\x0b" + struct.pack("<2Q", 1 << 63, 2), "has 18446744073709551616 bytes, got 0"),
        (b"\x08\x0f" + struct.pack("<3Q", 0, 1 << 62, 1 << 62), r"an array of shape \(0, 46116"),
    ],
)
def test_damaged_arrays_are_refused(data, reason):
    with pytest.raises(DecodeError, match=reason):
        make("encoding", "ndarray").decode(memoryview(data))


@settings(deadline=None)
@given(arrays())
def test_static_forms_are_ends_of_the_dynamic_one(array):
    dynamic = make("encoding", "ndarray").encode(array)
    assert make("encoding", f"ndarray:{array.dtype.name}").encode(array) == dynamic[1:]
    if array.size and array.ndim:
        shape = ",".join(map(str, array.shape))
        static = make("encoding", f"ndarray:{array.dtype.name}:{shape}").encode(array)
        assert static == dynamic[2 + array.ndim :]
