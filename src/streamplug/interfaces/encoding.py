"""Encodings of the values of a column as bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DecodeError, EncodeTypeError
from streamplug.types import Bytes1D, ColumnValues, Int64


class GatherBuffer:
    """Read-only bytes in several places of memory, such as the files of several shards.

    They are addressed like one buffer; only the values that are read need to be mapped.
    """

    def __init__(self, data: Bytes1D) -> None:
        """Take ownership of an array that spans all places."""
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def gather(self, starts: Int64, size: int) -> Bytes1D:
        """Copy rows of equal size; see the function `gather`."""
        if size == 0 or len(starts) == 0:
            return np.empty(0, np.uint8)
        data = self._data
        if starts.min() < 0 or starts.max() > len(data) - size:
            raise DecodeError(
                f"a value of {size} bytes lies outside the {len(data)} bytes of its shard"
            )
        # With every window of `size` bytes as one void item, indexing copies whole rows at once.
        rows = np.ndarray(
            (len(data) - size + 1,), np.dtype((np.void, size)), buffer=data.data, strides=(1,)
        )
        copied: Bytes1D = rows[starts].view(np.uint8)
        return copied

    def join(self, starts: Int64, sizes: Int64) -> Bytes1D:
        """Copy values back to back; see the function `joined`."""
        self._check_inside(starts, starts + sizes)
        wide = sizes + 1
        ends = np.cumsum(wide)
        places = np.repeat(starts - (ends - wide), wide)
        places += np.arange(len(places))
        places[ends - 1] = 0  # the byte behind a value may be out of bounds
        copied: Bytes1D = self._data[places] if len(self._data) else np.empty(len(places), np.uint8)
        copied[ends - 1] = 0
        return copied

    def slices(self, starts: Int64, sizes: Int64) -> list[memoryview]:
        """Return views of the values; see the function `slices`."""
        ends = starts + sizes
        self._check_inside(starts, ends)
        data = memoryview(self._data)  # type: ignore[arg-type]  # an array is a buffer
        return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def _check_inside(self, starts: Int64, ends: Int64) -> None:
        if len(ends) and (
            starts.min() < 0 or ends.max() > len(self._data) or (ends < starts).any()
        ):
            raise DecodeError(f"a value lies outside the {len(self._data)} bytes of its shard")


EncodedBytes: TypeAlias = "Bytes1D | GatherBuffer"
"""Bytes of encoded values, for `gather`, `joined` and `slices`."""


def _gather_buffer(buffer: EncodedBytes) -> GatherBuffer:
    return buffer if isinstance(buffer, GatherBuffer) else GatherBuffer(buffer)


def gather(buffer: EncodedBytes, starts: Int64, size: int) -> Bytes1D:
    """Copy rows of equal size out of a buffer.

    Args:
        buffer: Buffer of the rows.
        starts: Offset of each row, shape ``[n]``, in any order.
        size: Bytes per row.

    Returns:
        The rows back to back, uint8, shape ``[n * size]``.

    Raises:
        DecodeError: If a row is outside the buffer.
    """
    return _gather_buffer(buffer).gather(starts, size)


def windows(buffer: Bytes1D, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of the items of `dtype` that start at each byte of a buffer.

    Args:
        buffer: uint8, shape ``[total]``.
        dtype: Dtype of the items, possibly a subarray dtype.

    Returns:
        The items, shape ``[total - itemsize + 1, *dtype.shape]``.
    """
    count = max(len(buffer) - dtype.itemsize + 1, 0)
    item = np.dtype([("item", dtype)]) if dtype.shape else dtype  # NumPy then computes the strides
    items: NDArray[Any] = np.ndarray((count,), item, buffer, strides=(1,))
    return items["item"] if dtype.shape else items


def joined(buffer: EncodedBytes, starts: Int64, sizes: Int64) -> Bytes1D:
    """Copy short values of a buffer back to back, each followed by a zero byte.

    Args:
        buffer: Buffer of the values.
        starts: Offset of each value, shape ``[n]``, in any order.
        sizes: Bytes of each value, shape ``[n]``.

    Raises:
        DecodeError: If a value is outside the buffer.
    """
    return _gather_buffer(buffer).join(starts, sizes)


def slices(buffer: EncodedBytes, starts: Int64, sizes: Int64) -> list[memoryview]:
    """Return views of the values in a buffer.

    Args:
        buffer: Buffer of the values.
        starts: Offset of each value, shape ``[n]``, in any order.
        sizes: Bytes of each value, shape ``[n]``.

    Raises:
        DecodeError: If a value is outside the buffer.
    """
    return _gather_buffer(buffer).slices(starts, sizes)


class Encoding(ABC):
    """The stored form of the values of a column.

    An instance belongs to one column, is made by `from_spec`, is thread-safe, pickles, and holds no open
    resources. Subclasses define `encode` and `decode`.

    Attributes:
        api_version: Version of the interface that a subclass implements.
        unsafe: Whether decoding can execute code from the data.
        size: Bytes of every encoded value if all have the same size, else None.
        dtype: Dtype of values stored as plain memory of a NumPy scalar or array of fixed shape (a
            subarray dtype such as ``("<u2", (2048,))``). Batches of such a column are copied, without a
            call per value.
        decoded_bytes: Memory of a decoded value, if known and possibly far larger than the stored value;
            batches are then decoded in smaller parts.
    """

    api_version: ClassVar[int] = 1
    unsafe: ClassVar[bool] = False
    size: int | None = None
    dtype: np.dtype[Any] | None = None
    decoded_bytes: int | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "decode" in cls.__dict__ and "bound_decoder" not in cls.__dict__:
            cls.bound_decoder = Encoding.bound_decoder  # type: ignore[method-assign]  # an inherited one would call another decode

    @classmethod
    def from_spec(cls, argument: str | None) -> Encoding:
        """Return the encoding for the argument in a column's spec.

        Args:
            argument: ``"float32:2,3"`` for ``"ndarray:float32:2,3"``; None for a bare name.

        Raises:
            ConfigError: If the argument is invalid (the default accepts none).
        """
        if argument is not None:
            raise ConfigError(f"{cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the stored form of a value.

        Raises:
            EncodeTypeError: If the value has the wrong type.
            EncodeError: If this value cannot be stored.
        """

    @abstractmethod
    def decode(self, data: memoryview) -> Any:
        """Return the value of its stored form, without keeping a view of `data`.

        Raises:
            DecodeError: If the bytes are not a stored value. Any other exception is treated alike.
        """

    def bound_decoder(self, data: Bytes1D) -> Callable[..., Any]:
        """Return a fast `decode` for single values of one buffer.

        Args:
            data: uint8, shape ``[total]``; read only.

        Returns:
            A function of the start offset of a value and, unless `size` is set, of its end offset. It may
            raise any exception, after which `decode` is called for the error.
        """
        view, decode, size = memoryview(data), self.decode, self.size  # type: ignore[arg-type]  # an array is a buffer
        if size is None:
            return lambda start, stop: decode(view[start:stop])
        return lambda start: decode(view[start : start + size])

    def encode_batch(self, values: Sequence[Any] | NDArray[Any]) -> list[bytes] | Bytes1D:
        """Return the stored forms of many values: as a list, or back to back if of equal size.

        Raises:
            EncodeError: As for `encode`.
        """
        return [self.encode(value) for value in values]

    def decode_batch(self, buffer: EncodedBytes, starts: Int64, sizes: Int64) -> ColumnValues:
        """Decode many values of one buffer.

        Args:
            buffer: Buffer of the values, to be read with `gather` and `slices` only: it is no array if
                the values come from several shards.
            starts: Offset of each value, shape ``[n]``.
            sizes: Bytes of each value, shape ``[n]``.

        Returns:
            An array of shape ``[n, ...]`` or a list of n values, without views of `buffer`.

        Raises:
            DecodeError: As for `decode`.
        """
        if self.dtype is not None:
            return unpack(gather(buffer, starts, self.dtype.itemsize), self.dtype, len(starts))
        return [self.decode(data) for data in slices(buffer, starts, sizes)]

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        """Return the single values of a decoded batch, each as `decode` returns it."""
        return batch  # type: ignore[return-value]  # a ColumnValues can be indexed


Decoder: TypeAlias = Callable[[Encoding], Encoding]
"""A user's decoder of a column: maps the column's encoding to the one to decode with.

The result decodes values of the same size. Decoders pickle (with cloudpickle if need be); equal decoders
decode alike.
"""


def unpack(rows: Bytes1D, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Return a view of back-to-back rows as an array of `dtype`, shape ``[count, *dtype.shape]``."""
    return rows.view(dtype.base).reshape((count, *dtype.shape))


def wrong_type_error(encoding: str, expected: str, value: object) -> EncodeTypeError:
    """Return the error for a value of a type that an encoding does not accept."""
    return EncodeTypeError(
        f"{encoding} takes {expected}, got {type(value).__name__}: {value!r:.80}"
    )
