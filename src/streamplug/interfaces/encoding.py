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
    """Read-only bytes that lie in several places of memory, such as the files of several shards.

    They are addressed like one buffer, of which only the values asked for are touched: what lies between them
    need not be mapped.
    """

    def __init__(self, data: Bytes1D) -> None:
        """Take an array that spans all places; from then on nobody else may use it."""
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def gather(self, starts: Int64, size: int) -> Bytes1D:
        """Copy rows of one size; see the function `gather`."""
        if size == 0 or len(starts) == 0:
            return np.empty(0, np.uint8)
        data = self._data
        if starts.min() < 0 or starts.max() > len(data) - size:
            raise DecodeError(
                f"a value of {size} bytes lies outside the {len(data)} bytes of its shard"
            )
        # Every window of `size` bytes as one opaque item: indexing then copies whole rows at once.
        rows = np.ndarray(
            (len(data) - size + 1,), np.dtype((np.void, size)), buffer=data.data, strides=(1,)
        )
        copied: Bytes1D = rows[starts].view(np.uint8)
        return copied

    def join(self, starts: Int64, sizes: Int64) -> Bytes1D:
        """Copy values one after the other; see the function `joined`."""
        self._check_inside(starts, starts + sizes)
        wide = sizes + 1
        ends = np.cumsum(wide)
        places = np.repeat(starts - (ends - wide), wide)
        places += np.arange(len(places))
        places[ends - 1] = 0  # what follows a value may be outside
        copied: Bytes1D = self._data[places] if len(self._data) else np.empty(len(places), np.uint8)
        copied[ends - 1] = 0
        return copied

    def slices(self, starts: Int64, sizes: Int64) -> list[memoryview]:
        """Return the bytes of each value; see the function `slices`."""
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
"""What encoded values are read from, by `gather`, `joined` and `slices`."""


def _gather_buffer(buffer: EncodedBytes) -> GatherBuffer:
    return buffer if isinstance(buffer, GatherBuffer) else GatherBuffer(buffer)


def gather(buffer: EncodedBytes, starts: Int64, size: int) -> Bytes1D:
    """Copy rows of one size out of a buffer.

    Args:
        buffer: Holds the rows.
        starts: Where each row begins, shape ``[n]``; in any order.
        size: Bytes per row.

    Returns:
        The rows back to back, uint8, shape ``[n * size]``.

    Raises:
        DecodeError: If a row begins or ends outside the buffer.
    """
    return _gather_buffer(buffer).gather(starts, size)


def windows(buffer: Bytes1D, dtype: np.dtype[Any]) -> NDArray[Any]:
    """View what begins at each byte of a buffer as an item of `dtype`.

    Args:
        buffer: uint8, shape ``[total]``.
        dtype: Of the items, with a shape if they are arrays.

    Returns:
        The items, shape ``[total - itemsize + 1, *dtype.shape]``.
    """
    count = max(len(buffer) - dtype.itemsize + 1, 0)
    item = np.dtype([("item", dtype)]) if dtype.shape else dtype  # numpy then finds the strides
    items: NDArray[Any] = np.ndarray((count,), item, buffer, strides=(1,))
    return items["item"] if dtype.shape else items


def joined(buffer: EncodedBytes, starts: Int64, sizes: Int64) -> Bytes1D:
    """Copy short values of a buffer one after the other, a zero byte behind each.

    Args:
        buffer: Holds the values.
        starts: Where each value begins, shape ``[n]``; in any order.
        sizes: Bytes of each, shape ``[n]``.

    Raises:
        DecodeError: If a value begins or ends outside the buffer.
    """
    return _gather_buffer(buffer).join(starts, sizes)


def slices(buffer: EncodedBytes, starts: Int64, sizes: Int64) -> list[memoryview]:
    """Return the bytes of each value in a buffer, without copying.

    Args:
        buffer: Holds the values.
        starts: Where each value begins, shape ``[n]``; in any order.
        sizes: Bytes of each, shape ``[n]``.

    Raises:
        DecodeError: If a value begins or ends outside the buffer.
    """
    return _gather_buffer(buffer).slices(starts, sizes)


class Encoding(ABC):
    """How the values of a column are stored.

    An instance belongs to one column and may be used by several threads at once. It is made by
    `from_spec`, pickles, and holds no open resources. Subclasses define `encode` and `decode`.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
        unsafe: Whether decoding can run code that the data brings along.
        size: Bytes of every encoded value where they all have the same, else None.
        dtype: For values that are the plain memory of a numpy scalar or array of fixed shape: its
            dtype (a subarray dtype such as ``("<u2", (2048,))`` for arrays). Batches of such a
            column are filled by copying, without a call per value.
        decoded_bytes: What a decoded value takes in memory, where it is known and may be far more than
            the stored one; batches are then decoded fewer at a time.
    """

    api_version: ClassVar[int] = 1
    unsafe: ClassVar[bool] = False
    size: int | None = None
    dtype: np.dtype[Any] | None = None
    decoded_bytes: int | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "decode" in cls.__dict__ and "bound_decoder" not in cls.__dict__:
            cls.bound_decoder = Encoding.bound_decoder  # type: ignore[method-assign]  # or it is that of another decode

    @classmethod
    def from_spec(cls, argument: str | None) -> Encoding:
        """Make the encoding for what follows the name in a column's spec.

        Args:
            argument: ``"float32:2,3"`` for ``"ndarray:float32:2,3"``; None for a bare name.

        Raises:
            ConfigError: If the argument has no meaning here (the default takes none).
        """
        if argument is not None:
            raise ConfigError(f"{cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the stored form of a value.

        Raises:
            EncodeTypeError: If the value has the wrong type.
            EncodeError: If this very value cannot be stored.
        """

    @abstractmethod
    def decode(self, data: memoryview) -> Any:
        """Return the value whose stored form is `data`; it must not keep a view of `data`.

        Raises:
            DecodeError: If the bytes are not a stored value. Any other exception is taken as one.
        """

    def bound_decoder(self, data: Bytes1D) -> Callable[..., Any]:
        """Return a `decode` for single values that lie in one buffer, to be called often.

        Args:
            data: uint8, shape ``[total]``; read only.

        Returns:
            A function that is called with where a value begins and, unless all have one `size`, where
            it ends. It returns what `decode` would, or raises anything: `decode` is then asked.
        """
        view, decode, size = memoryview(data), self.decode, self.size  # type: ignore[arg-type]  # an array is a buffer
        if size is None:
            return lambda start, stop: decode(view[start:stop])
        return lambda start: decode(view[start : start + size])

    def encode_batch(self, values: Sequence[Any] | NDArray[Any]) -> list[bytes] | Bytes1D:
        """Encode many values: a list of their stored forms, or those of one size back to back.

        Raises:
            EncodeError: As `encode` does.
        """
        return [self.encode(value) for value in values]

    def decode_batch(self, buffer: EncodedBytes, starts: Int64, sizes: Int64) -> ColumnValues:
        """Decode many values that lie in one buffer.

        Args:
            buffer: Holds the values. Read only them, by `gather` and `slices`: it is no array if they are of
                several shards.
            starts: Where each value begins, shape ``[n]``.
            sizes: How many bytes each has, shape ``[n]``.

        Returns:
            An array whose first axis has length n, or a list of n values; nothing in it may be a
            view of `buffer`.

        Raises:
            DecodeError: As `decode` does.
        """
        if self.dtype is not None:
            return unpack(gather(buffer, starts, self.dtype.itemsize), self.dtype, len(starts))
        return [self.decode(data) for data in slices(buffer, starts, sizes)]

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        """Return the single values of a decoded batch, each as `decode` would give it."""
        return batch  # type: ignore[return-value]  # a ColumnValues can be indexed


Decoder: TypeAlias = Callable[[Encoding], Encoding]
"""What a user reads a column with: called with its encoding, returns the one to decode by.

That takes values of the same size. Decoders pickle, by cloudpickle if need be, and two that are equal
decode alike.
"""


def unpack(rows: Bytes1D, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """See rows that lie back to back as an array of `dtype`, shape ``[count, *dtype.shape]``."""
    return rows.view(dtype.base).reshape((count, *dtype.shape))


def wrong_type_error(encoding: str, expected: str, value: object) -> EncodeTypeError:
    """Return the error for a value whose type an encoding does not take."""
    return EncodeTypeError(
        f"{encoding} takes {expected}, got {type(value).__name__}: {value!r:.80}"
    )
