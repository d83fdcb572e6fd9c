"""Encoding of tensors without pickle."""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from streamplug.errors import ConfigError, DecodeError, EncodeError, EncodeTypeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import (
    describe_start,
    pack_shape,
    parse_array_spec,
    unpack_shape,
    wrong_type_error,
)

_CODES = {
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
"""Stored dtype codes, which never change; codes of dtypes that ``ndarray`` has are the same."""

_DTYPES: dict[int, torch.dtype] = {
    code: getattr(torch, name) for name, code in _CODES.items() if hasattr(torch, name)
}
_CODE_OF = {dtype: code for code, dtype in _DTYPES.items()}


class TensorEncoding(Encoding):
    """``tensor``, ``tensor:DTYPE`` or ``tensor:DTYPE:D0,D1,...``: a tensor of any device.

    Dtype and shape are stored in front of the values unless the spec fixes them. All integers and values are
    little-endian, the values in C order::

        uint8         code of the dtype
        uint8         number of dimensions << 2 | k
        uint{8<<k}    each dimension, k the smallest of 0 to 3 that holds them all
        values

    Tensors are decoded to CPU tensors that do not require gradients.
    """

    def __init__(self, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> None:
        """Fix the dtype, or the dtype and the shape, of all tensors.

        Raises:
            ConfigError: If this torch has no such dtype, or a dimension is negative.
        """
        self._dtype = None if dtype is None else _DTYPES.get(_CODES.get(dtype, 0))
        if self._dtype is None and (dtype is not None or shape is not None):
            names = ", ".join(name for name, code in _CODES.items() if code in _DTYPES)
            raise ConfigError(f"tensor dtype must be one of {names}, got {dtype!r}")
        self._shape = shape
        if self._dtype is not None and shape is not None:
            if min(shape, default=0) < 0:
                raise ConfigError(f"tensor shape must have dimensions of at least 0, got {shape}")
            self.size = prod(shape) * self._dtype.itemsize

    @classmethod
    def from_spec(cls, argument: str | None) -> TensorEncoding:
        return cls(*parse_array_spec("tensor", argument))

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, torch.Tensor):
            raise wrong_type_error("tensor", "a torch.Tensor", value)
        code = _CODE_OF.get(value.dtype)
        if code is None or self._dtype not in (None, value.dtype):
            expected = self._dtype or ", ".join(map(str, _CODE_OF))
            raise EncodeTypeError(f"tensor takes tensors of {expected}, got {value.dtype}")
        if value.layout is not torch.strided or value.is_meta:
            raise EncodeTypeError(
                f"tensor takes dense tensors, got {value.layout} on {value.device}"
            )
        if self._shape not in (None, tuple(value.shape)):
            raise EncodeError(f"tensor takes shape {self._shape}, got {tuple(value.shape)}")
        head = b"" if self._dtype is not None else bytes([code])
        head += b"" if self._shape is not None else pack_shape("tensor", tuple(value.shape))
        return head + _values(value)

    def decode(self, data: memoryview) -> torch.Tensor:
        start = 0
        dtype, shape = self._dtype, self._shape
        if dtype is None:
            dtype = _DTYPES.get(data[0]) if len(data) else None
            if dtype is None:
                raise DecodeError(f"not a tensor of this torch: {describe_start(data)}")
            start = 1
        if shape is None:
            shape, start = unpack_shape("tensor", data, start)
        size = prod(shape) * dtype.itemsize
        if size != len(data) - start:
            raise DecodeError(f"{dtype} {shape} has {size} bytes, got {len(data) - start}")
        values = bytearray(data[start:])
        if dtype is torch.bool and values.strip(b"\0\1"):
            raise DecodeError("a tensor of torch.bool holds bytes other than 0 and 1")
        try:
            return _tensor(values, dtype, shape)
        # Of an empty tensor with dimensions that torch refuses.
        except (RuntimeError, TypeError) as error:
            raise DecodeError(f"a tensor of shape {shape}: {error}") from error


def _tensor(values: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor that shares the memory of `values`."""
    if not values:  # torch.frombuffer refuses empty buffers
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(values, dtype=dtype).reshape(shape)


def _values(tensor: torch.Tensor) -> bytes:
    values = bytearray(tensor.numel() * tensor.dtype.itemsize)
    # The copy moves values to the CPU and C order, and resolves lazy conjugation.
    _tensor(values, tensor.dtype, tuple(tensor.shape)).copy_(tensor.detach())
    return bytes(values)
