"""Encoding: how one value of a column becomes bytes, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, DecodeError, EncodeTypeError
from streamplug.types import Bytes1D, ColumnValues, Int64


def gather(buffer: Bytes1D, starts: Int64, size: int) -> Bytes1D:
    """Copy rows of one size out of a buffer.

    Args:
        buffer: uint8, shape ``[total]``.
        starts: Where each row begins, shape ``[n]``; in any order.
        size: Bytes per row.

    Returns:
        The rows back to back, uint8, shape ``[n * size]``.

    Raises:
        DecodeError: If a row begins or ends outside the buffer.
    """
    if size == 0 or len(starts) == 0:
        return np.empty(0, np.uint8)
    if starts.min() < 0 or starts.max() > len(buffer) - size:
        raise DecodeError(
            f"a value of {size} bytes lies outside the {len(buffer)} bytes of its shard"
        )
    # Every window of `size` bytes as one opaque item: indexing then copies whole rows at once.
    windows = np.ndarray(
        (len(buffer) - size + 1,), np.dtype((np.void, size)), buffer=buffer.data, strides=(1,)
    )
    rows: Bytes1D = windows[starts].view(np.uint8)
    return rows


def windows(buffer: Bytes1D, dtype: np.dtype[Any]) -> NDArray[Any]:
    """See what begins at each byte of a buffer as an item of `dtype`, without copying.

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


def joined(buffer: Bytes1D, starts: Int64, sizes: Int64) -> Bytes1D:
    """Copy values that lie in a buffer to one place: for values of some bytes each.

    Args:
        buffer: uint8, shape ``[total]``.
        starts: Where each value begins, shape ``[n]``; in any order.
        sizes: How many bytes each has, shape ``[n]``.

    Returns:
        The values one after the other, a zero behind each.

    Raises:
        DecodeError: If a value begins or ends outside the buffer.
    """
    _check_inside(buffer, starts, starts + sizes)
    wide = sizes + 1
    ends = np.cumsum(wide)
    places = np.repeat(starts - (ends - wide), wide)
    places += np.arange(len(places))
    places[ends - 1] = 0  # what follows a value may be outside
    copied: Bytes1D = buffer[places] if len(buffer) else np.empty(len(places), np.uint8)
    copied[ends - 1] = 0
    return copied


def slices(buffer: Bytes1D, starts: Int64, sizes: Int64) -> list[memoryview]:
    """Return the bytes of each value that lies in a buffer, without copying.

    Args:
        buffer: uint8, shape ``[total]``.
        starts: Where each value begins, shape ``[n]``; in any order.
        sizes: How many bytes each has, shape ``[n]``.

    Raises:
        DecodeError: If a value begins or ends outside the buffer.
    """
    ends = starts + sizes
    _check_inside(buffer, starts, ends)
    data = memoryview(buffer)  # type: ignore[arg-type]  # an array is a buffer
    return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _check_inside(buffer: Bytes1D, starts: Int64, ends: Int64) -> None:
    if len(ends) and (starts.min() < 0 or ends.max() > len(buffer) or (ends < starts).any()):
        raise DecodeError(f"a value lies outside the {len(buffer)} bytes of its shard")


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

    def decode_batch(self, buffer: Bytes1D, starts: Int64, sizes: Int64) -> ColumnValues:
        """Decode many values that lie in one buffer.

        Args:
            buffer: uint8, shape ``[total]``; read only.
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
