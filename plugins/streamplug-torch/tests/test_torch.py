from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from streamplug_testing.encoding import EncodingTests

from streamplug.errors import ConfigError, DecodeError, EncodeError, EncodeTypeError
from streamplug.plugin import make

CODES = {
    "uint8": 8,
    "int8": 9,
    "bool": 10,
    "float8_e4m3fn": 11,
    "float8_e5m2": 12,
    "float8_e4m3fnuz": 13,
    "float8_e5m2fnuz": 14,
    "float8_e8m0fnu": 15,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "bfloat16": 19,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "complex32": 35,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
    "complex64": 67,
    "complex128": 128,
}
NAMES = [name for name in CODES if hasattr(torch, name)]
NOT_TENSORS = (1, [1.0], b"bytes", None, np.ones(2, np.float32))


@pytest.fixture(autouse=True)
def _complex32():
    """Keep what torch has to say about complex32 from failing the tests."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        yield


def bits(tensor):
    flat = tensor.resolve_conj().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).tolist()


@st.composite
def tensors(draw, names=NAMES, shape=None):
    dtype = getattr(torch, draw(st.sampled_from(names)))
    if shape is None:
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype is torch.bool:
        data = bytes(byte & 1 for byte in data)
    if not data:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(data), dtype=dtype)
    if draw(st.booleans()):
        return flat.reshape(shape[::-1]).permute(tuple(range(len(shape)))[::-1])
    return flat.reshape(shape)


class Tensors(EncodingTests):
    wrong = NOT_TENSORS

    def equal(self, a, b):
        return (a.dtype, a.shape, bits(a)) == (b.dtype, b.shape, bits(b))


class TestAny(Tensors):
    spec = "tensor"
    bad_arguments = (
        "",
        ":",
        ":2",
        "float",
        "torch.float32",
        "int8:a",
        "int8:-1",
        "int8:1:2",
        "qint8",
    )
    refused = (torch.eye(2).to_sparse(), torch.empty(2, device="meta"))
    golden = (
        (torch.tensor([1, 2], dtype=torch.uint8), "0804020102"),
        (torch.tensor([[1.5], [2]]), "220802010000c03f00000040"),
        (torch.tensor([[1, 2], [3, 4]], dtype=torch.int8).T, "0908020201030204"),
        (torch.tensor([1.5, -2], dtype=torch.bfloat16), "130402c03f00c0"),
        (torch.tensor([True, False]), "0a04020100"),
        (torch.tensor(1.0, dtype=torch.float64), "4200000000000000f03f"),
        (torch.tensor([1 + 2j]), "4304010000803f00000040"),
        (torch.zeros((0, 300), dtype=torch.float16), "120900002c01"),
    )

    def values(self):
        return tensors()


class TestStaticDtype(Tensors):
    spec = "tensor:bfloat16"
    refused = (torch.ones(2), torch.ones(2, dtype=torch.float16))
    golden = ((torch.tensor([[1.5]], dtype=torch.bfloat16), "080101c03f"),)

    def values(self):
        return tensors(["bfloat16"])


class TestStaticShape(Tensors):
    spec = "tensor:bfloat16:2,3"
    refused = tuple(torch.ones(shape, dtype=torch.bfloat16) for shape in ((3, 2), (6,), ()))
    golden = ((torch.arange(6).reshape(3, 2).T.bfloat16(), "000000408040803f4040a040"),)

    def values(self):
        return tensors(["bfloat16"], (2, 3))

    def test_size_is_fixed(self):
        assert make("encoding", self.spec).size == 12

    def test_batch_may_be_one_tensor(self):
        encoding = make("encoding", self.spec)
        batch = torch.arange(24).reshape(4, 2, 3).bfloat16()
        assert encoding.encode_batch(batch) == [encoding.encode(row) for row in batch]


class TestSingleNumber(Tensors):
    spec = "tensor:int64:"
    golden = ((torch.tensor(-2), "feffffffffffffff"),)

    def values(self):
        return tensors(["int64"], ())


@pytest.mark.parametrize("name", NAMES)
def test_dtype_codes(name):
    tensor = torch.frombuffer(bytearray(getattr(torch, name).itemsize), dtype=getattr(torch, name))
    stored = make("encoding", "tensor").encode(tensor)
    assert stored[0] == CODES[name]
    assert make("encoding", f"tensor:{name}").encode(tensor) == stored[1:]
    assert make("encoding", f"tensor:{name}:1").encode(tensor) == stored[3:]


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_same_bytes_as_ndarray(kind):
    array = np.arange(600).reshape(2, 300).astype(kind)
    stored = make("encoding", "ndarray").encode(array)
    assert make("encoding", "tensor").encode(torch.from_numpy(array)) == stored


def test_gradients_are_left_behind():
    encoding = make("encoding", "tensor")
    weights = torch.nn.Parameter(torch.ones(2))
    decoded = encoding.decode(memoryview(encoding.encode(weights * 2)))
    assert decoded.tolist() == [2, 2]
    assert (type(decoded), decoded.requires_grad) == (torch.Tensor, False)


def test_lazy_views_are_stored_as_what_they_show():
    encoding = make("encoding", "tensor")
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    for view in (tensor.conj(), tensor.conj().imag, tensor[::2], tensor[:1].expand(3)):
        decoded = encoding.decode(memoryview(encoding.encode(view)))
        assert torch.equal(decoded, view)


def test_decoded_tensors_are_ones_own():
    encoding = make("encoding", "tensor")
    stored = encoding.encode(torch.zeros(3))
    decoded = encoding.decode(memoryview(stored))
    decoded += 1
    assert stored == encoding.encode(torch.zeros(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_tensors_come_from_any_device():
    encoding = make("encoding", "tensor")
    tensor = torch.arange(6.0).reshape(2, 3).T
    stored = encoding.encode(tensor.cuda())
    assert stored == encoding.encode(tensor)
    assert encoding.decode(memoryview(stored)).device.type == "cpu"


def test_refusal_names_the_dtype():
    with pytest.raises(EncodeTypeError, match=r"of torch.bfloat16, got torch.float32"):
        make("encoding", "tensor:bfloat16").encode(torch.ones(1))
    with pytest.raises(ConfigError, match="must be one of uint8, int8, bool"):
        make("encoding", "tensor:float")


def test_more_dimensions_than_the_layout_has_are_refused():
    with pytest.raises(EncodeError, match="up to 63 dimensions, got 64"):
        make("encoding", "tensor").encode(torch.ones((1,) * 64))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a tensor of this torch: it is empty"),
        (b"\x07\x04\x01\x00", r"it begins with b'\\x07\\x04\\x01\\x00'"),
        (b"\x08", "lacks its shape"),
        (b"\x08\xff" + bytes(10), "cannot have 63 dimensions"),
        (b"\x08\x04\x03ab", r"\(3,\) has 3 bytes, got 2"),
        (b"\x0a\x04\x03\x00\x01\x02", "bytes other than 0 and 1"),
        (b"\x08\x0b" + struct.pack("<2Q", 1 << 63, 2), "has 18446744073709551616 bytes, got 0"),
        (b"\x08\x0f" + struct.pack("<3Q", 0, 1 << 62, 1 << 62), r"a tensor of shape \(0, 46116"),
        (b"\x08\x0b" + struct.pack("<2Q", 0, 1 << 63), r"a tensor of shape \(0, 92233"),
    ],
)
def test_damaged_tensors_are_refused(data, reason):
    with pytest.raises(DecodeError, match=reason):
        make("encoding", "tensor").decode(memoryview(data))
