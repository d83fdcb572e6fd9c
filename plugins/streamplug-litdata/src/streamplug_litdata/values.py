"""Encodings of single values, by LitData's names."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError, EncodeError, InvalidIndexError
from streamplug.interfaces import Encoding, GatherBuffer, VectorColumn
from streamplug.plugin_kit import describe_start, wrong_type_error
from streamplug.types import ColumnValues, Int64

NUMPY = dict(
    enumerate(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"])
)
"""NumPy dtypes by their codes; higher codes are Python objects and text."""

TORCH = dict(enumerate(["f4", "f4", "f8", "f8", "c8", "c8", "c16", "c16", "f2", "f2"])) | dict(
    enumerate(["u1", "i1", "i2", "i2", "i4", "i4", "i8", "i8", "?", "u2"], 11)
)
"""Tensor dtypes by their codes; 10 is bfloat16, which LitData cannot write."""

_MAX_NDIM = 32


class Float(Encoding):
    """A float, as float64."""

    dtype = np.dtype("<f8")
    size = 8

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (float, int)):
            raise wrong_type_error("float", "a float", value)
        return struct.pack("<d", value)

    def decode(self, data: memoryview) -> float:
        if len(data) != 8:
            raise DecodeError(f"a float has 8 bytes, got {len(data)}")
        value: float = struct.unpack("<d", data)[0]
        return value

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        return np.asarray(batch).tolist()  # type: ignore[no-any-return]  # NumPy says Any


class Bool(Encoding):
    """A bool, as one byte; nonzero is True."""

    size = 1

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (bool, np.bool_)):
            raise wrong_type_error("bool", "a bool", value)
        return b"\1" if value else b"\0"

    def decode(self, data: memoryview) -> bool:
        if len(data) != 1:
            raise DecodeError(f"a bool has 1 byte, got {len(data)}")
        return data[0] != 0

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        values: NDArray[Any] = buffer.gather(starts, 1) != 0
        return values

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        return np.asarray(batch).tolist()  # type: ignore[no-any-return]  # NumPy says Any


class Vector(Encoding, VectorColumn):
    """``no_header_numpy:CODE``, ``no_header_tensor:CODE``: a one-dimensional array without a header."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        """Set the dtype, which is little-endian."""
        self.item: np.dtype[Any] = dtype

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, np.ndarray) or value.dtype != self.item:
            raise wrong_type_error("vector", f"an array of {self.item}", value)
        if value.ndim != 1:
            raise EncodeError(f"a vector has one dimension, got {value.ndim}")
        return value.tobytes()

    def decode(self, data: memoryview) -> NDArray[Any]:
        return self._array(data, len(data))

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        if len(sizes) and (sizes == sizes[0]).all() and not int(sizes[0]) % self.item.itemsize:
            rows = buffer.gather(starts, int(sizes[0])).view(self.item)
            return list(rows.reshape(len(starts), -1))
        return [self._array(data, len(data)) for data in buffer.slices(starts, sizes)]

    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        counts, rest = np.divmod(sizes, dtype.itemsize)
        return np.where(rest == 0, counts, -1)

    def _array(self, data: memoryview, size: int) -> NDArray[Any]:
        if size % self.item.itemsize:
            raise DecodeError(f"{size} bytes are no array of {self.item}")
        values: NDArray[Any] = np.frombuffer(data, self.item).copy()
        return values


class Array(Encoding):
    """``numpy``: an array with a header of uint32: dtype code, number of dimensions, and each dimension."""

    codes = NUMPY
    _orders: tuple[str, ...] = ("<",)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, np.ndarray):
            raise wrong_type_error("array", "a numpy array", value)
        plain = value.dtype.newbyteorder("<")
        known = [code for code, name in self.codes.items() if np.dtype(f"<{name}") == plain]
        if not known:
            raise wrong_type_error("array", "numbers and bools", value)
        head = struct.pack(
            f"{self._orders[0]}{value.ndim + 2}I", known[-1], value.ndim, *value.shape
        )
        return head + value.astype(plain, copy=False).tobytes()

    def decode(self, data: memoryview) -> NDArray[Any]:
        for order in self._orders:
            head = self._head(data, order)
            if head is not None:
                dtype, shape = head
                begin = 8 + 4 * len(shape)
                if prod(shape) * dtype.itemsize == len(data) - begin:
                    flat: NDArray[Any] = np.frombuffer(data[begin:], dtype)
                    shaped: NDArray[Any] = flat.reshape(shape).copy()
                    return shaped
        raise DecodeError(f"{len(data)} bytes are no array: {describe_start(data)}")

    def _head(self, data: memoryview, order: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
        if len(data) < 8:
            return None
        code, dimensions = struct.unpack_from(f"{order}2I", data)
        if code not in self.codes or not 0 <= dimensions <= min(_MAX_NDIM, (len(data) - 8) // 4):
            return None
        shape = struct.unpack_from(f"{order}{dimensions}I", data, 8)
        return np.dtype(self.codes[code]).newbyteorder("<"), shape


class Tensor(Array):
    """``tensor``: a tensor, decoded to an array; the header is big-endian, in older chunks little-endian."""

    codes = TORCH
    _orders = (">", "<")


def dtype_of(codes: dict[int, str], code: str) -> np.dtype[Any]:
    """Return the dtype with a code.

    Raises:
        InvalidIndexError: If the code is unknown or denotes Python objects.
    """
    name = {str(number): name for number, name in codes.items()}.get(code)
    if name is None:
        raise InvalidIndexError(f"arrays of the dtype with the code {code!r:.20} are not read")
    dtype: np.dtype[Any] = np.dtype(name).newbyteorder("<")
    return dtype
