"""Encoding of NumPy arrays, optionally of fixed dtype and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DecodeError, EncodeError, EncodeTypeError
from streamplug.interfaces import Encoding, GatherBuffer, VectorColumn
from streamplug.plugin_kit import (
    describe_start,
    pack_shape,
    parse_array_spec,
    unpack_shape,
    windows,
    wrong_type_error,
)
from streamplug.types import Bytes1D, ColumnValues, Int64

_CODES = {
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
_NAMES = ", ".join(_CODES)
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
_CODE_OF = {dtype.newbyteorder(order): code for code, dtype in _DTYPES.items() for order in "<>"}
_LENGTH_RANGES = [(0, 0xFF), (1 << 8, 0xFFFF), (1 << 16, 0xFFFF_FFFF), (1 << 32, (1 << 63) - 1)]
"""Ranges of lengths that are stored in 1, 2, 4 and 8 bytes."""
_MAX_NDIM = 63
_MAX_WIDTH = 4
"""Bytes of a vector's length up to which batches are decoded at once."""


class NDArrayEncoding(Encoding, VectorColumn):
    """``ndarray``, ``ndarray:DTYPE`` or ``ndarray:DTYPE:D0,D1,...``: a NumPy array.

    A header with what the spec leaves open precedes the values, which are in C order::

        uint8         code of the dtype
        uint8         number of dimensions << 2 | k
        uint{8<<k}    each dimension, k the smallest of 0 to 3 that fits all of them
        values
    """

    def __init__(self, dtype: str | None = None, shape: tuple[int, ...] | None = None) -> None:
        """Set the dtype, or dtype and shape, of all arrays."""
        if dtype is not None and dtype not in _CODES:
            raise ConfigError(f"ndarray dtype must be one of {_NAMES}, got {dtype!r}")
        self.item = None if dtype is None else _DTYPES[_CODES[dtype]]
        self._shape = shape
        if shape is not None:
            self.dtype = _subarray(self.item, shape)
            self.size = self.dtype.itemsize

    @classmethod
    def from_spec(cls, argument: str | None) -> NDArrayEncoding:
        return cls(*parse_array_spec("ndarray", argument))

    def encode(self, value: Any) -> bytes:
        if type(value) is np.ndarray and value.shape == self._shape and value.dtype == self.item:
            return value.tobytes()
        if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
            raise wrong_type_error("ndarray", "a numpy array", value)
        code = self._code(value.dtype)
        values = value.astype(_DTYPES[code], copy=False).tobytes()
        if self._shape is not None:
            if value.shape != self._shape:
                raise EncodeError(f"ndarray takes shape {self._shape}, got {value.shape}")
            return values
        header = pack_shape("ndarray", value.shape)
        return (bytes([code]) if self.item is None else b"") + header + values

    def encode_batch(self, values: Sequence[Any] | NDArray[Any]) -> list[bytes] | Bytes1D:
        if self.dtype is None or not isinstance(values, np.ndarray):
            return super().encode_batch(values)
        if values.shape[1:] != self._shape or isinstance(values, np.ma.MaskedArray):
            return super().encode_batch(values)
        rows = values.astype(_DTYPES[self._code(values.dtype)], order="C")
        flat: Bytes1D = rows.reshape(-1).view(np.uint8)
        return flat

    def decode(self, data: memoryview) -> NDArray[Any]:
        start = 0
        dtype, shape = self.item, self._shape
        if shape is not None and len(data) == self.size:
            fixed: NDArray[Any] = np.ndarray(shape, dtype, data).copy()
            return fixed
        if dtype is None:
            dtype = _DTYPES.get(data[0]) if len(data) else None
            if dtype is None:
                raise DecodeError(f"not an array: {describe_start(data)}")
            start = 1
        if shape is None:
            shape, start = unpack_shape("ndarray", data, start)
        size = prod(shape) * dtype.itemsize
        if size != len(data) - start:
            raise DecodeError(
                f"an array of {dtype.name} {shape} has {size} bytes, got {len(data) - start}"
            )
        try:
            values: NDArray[Any] = np.ndarray(shape, dtype, data, start).copy()
        except ValueError as error:  # an empty array with a dimension too large for NumPy
            raise DecodeError(f"an array of shape {shape}: {error}") from error
        return values

    def bound_decoder(self, data: Bytes1D) -> Callable[..., NDArray[Any]]:
        if self.dtype is None:
            return super().bound_decoder(data)
        arrays = windows(data, self.dtype)
        return lambda start: arrays[start].copy()

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        vectors = self._vectors(buffer, starts, sizes) if self._shape is None else None
        return super().decode_batch(buffer, starts, sizes) if vectors is None else vectors

    def _vectors(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> list[Any] | None:
        """Decode vectors of one dtype at once; None if any value is another array or damaged."""
        lead = self._lead
        if not len(starts) or sizes.min() < lead:
            return None
        head = buffer.gather(starts, lead).reshape(-1, lead)
        dtype = _DTYPES.get(int(head[0, 0])) if self.item is None else self.item
        kinds = head[:, -1]
        if dtype is None or (head[:, :-1] != head[0, :-1]).any() or (kinds >> 2 != 1).any():
            return None
        begin, lengths = starts + lead, np.empty_like(starts)
        for kind in np.unique(kinds).tolist():
            width, places = 1 << (kind & 3), np.flatnonzero(kinds == kind)
            if width > _MAX_WIDTH or sizes[places].min() < lead + width:
                return None
            lengths[places] = buffer.gather(begin[places], width).view(f"<u{width}")
            begin[places] += width
        if (begin + lengths * dtype.itemsize != starts + sizes).any():
            return None
        values = buffer.slices(begin, lengths * dtype.itemsize)
        return [np.ndarray(n, dtype, v).copy() for n, v in zip(lengths.tolist(), values)]

    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        counts = np.full(len(sizes), -1, np.int64)
        if self._shape is not None:
            if len(self._shape) == 1:
                counts[sizes == self.size] = self._shape[0]
            return counts
        for k, (min_count, max_count) in enumerate(_LENGTH_RANGES):
            candidates, rest = np.divmod(sizes - self._lead - (1 << k), dtype.itemsize)
            fits = (rest == 0) & (candidates >= min_count) & (candidates <= max_count)
            counts[fits] = candidates[fits]
        return counts

    def are_vectors(
        self, buffer: GatherBuffer, starts: Int64, lengths: Int64, dtype: np.dtype[Any]
    ) -> NDArray[np.bool_]:
        if self._shape is not None:
            return super().are_vectors(buffer, starts, lengths, dtype)
        head = buffer.gather(starts, self._lead).reshape(-1, self._lead)
        lowest = [min_count for min_count, _ in _LENGTH_RANGES]
        kinds = np.searchsorted(lowest, lengths, side="right") - 1
        are_equal: NDArray[np.bool_] = head[:, -1] == (1 << 2 | kinds)
        if self.item is None:
            are_equal &= head[:, 0] == _CODE_OF.get(dtype, 0)
        for k in np.unique(kinds).tolist():
            places = np.flatnonzero(kinds == k)
            lengths_stored = buffer.gather(starts[places] + self._lead, 1 << k).view(f"<u{1 << k}")
            are_equal[places] &= lengths_stored == lengths[places]
        return are_equal

    @property
    def _lead(self) -> int:
        """Bytes before the dimensions."""
        return 1 + (self.item is None)

    def _code(self, dtype: np.dtype[Any]) -> int:
        code = _CODE_OF.get(dtype)
        if code is None:
            raise EncodeTypeError(f"ndarray takes arrays of {_NAMES}, got {dtype}")
        if self.item is not None and self.item != _DTYPES[code]:
            raise EncodeTypeError(f"ndarray takes arrays of {self.item}, got {dtype}")
        return code


def _subarray(dtype: np.dtype[Any] | None, shape: tuple[int, ...]) -> np.dtype[Any]:
    if dtype is None:
        raise ConfigError("ndarray: a fixed shape needs a fixed dtype")
    if not shape or min(shape) < 1 or len(shape) > _MAX_NDIM:
        raise ConfigError(
            f"ndarray shape must be 1 to {_MAX_NDIM} dimensions of at least 1, got {shape}"
        )
    try:
        return np.dtype((dtype, shape))
    except ValueError as error:  # NumPy limits subarray dtypes to 2 GiB
        raise ConfigError(f"ndarray shape {shape} of {dtype.name}: {error}") from error
