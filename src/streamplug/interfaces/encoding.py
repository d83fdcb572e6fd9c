"""Encodings of the values of a column as bytes, and values that are decoded late or in part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DecodeError
from streamplug.interfaces.plugin import Plugin
from streamplug.types import Bytes1D, ColumnValues, Int64

MAX_VALUE_BYTES = 1 << 29
"""Default of `max_value_bytes`: the largest RGB image that Pillow decodes."""


class LazyValue:
    """Base of values that decode their data on first use, with errors that say where these are stored.

    Attributes:
        place: Set by the reader; its `str` names the shard, the sample and the column. None if unknown.
    """

    place: object = None

    def decode_whole(self) -> None:
        """Decode all of the value, to find out whether it is damaged.

        Raises:
            DecodeError: If it is.
        """
        raise NotImplementedError

    def name_place(self, error: DecodeError) -> DecodeError:
        """Return an error of this value with its place in front, unless that is there already."""
        if self.place is None or str(error).startswith(str(self.place)):
            return error
        return DecodeError(f"{self.place}: {error}")


def lazy_values(value: object) -> list[LazyValue]:
    """Return the lazy values in a decoded value: itself, or items of a list, a tuple or a dict."""
    if isinstance(value, LazyValue):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [lazy for item in value for lazy in lazy_values(item)]
    return []


@dataclass(frozen=True, slots=True)
class StoredRange:
    """A stored value that is not in memory, to be read in parts. Pickles.

    Attributes:
        read_file: Returns byte ranges of the file that contains the value.
        start: Offset of the value in the file.
        size: Bytes of the value.
    """

    read_file: Callable[[Int64], list[Bytes1D]]
    start: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self, ranges: Int64) -> list[Bytes1D]:
        """Fetch parts of the value, given by start and stop, shape ``[n, 2]``; each is a request.

        Raises:
            StreamplugError: If they cannot be fetched.
        """
        return self.read_file(ranges + self.start)


class GatherBuffer:
    """Read-only bytes of encoded values, which may be in the files of several shards.

    Only the values that are read need to be mapped into memory. Offsets count from the start of the buffer;
    all methods raise `DecodeError` if a value is outside of it.
    """

    def __init__(self, data: Bytes1D) -> None:
        """Take an array that spans all values."""
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def gather(self, starts: Int64, size: int) -> Bytes1D:
        """Copy values of equal size back to back.

        Args:
            starts: Offset of each value, shape ``[n]``, in any order.
            size: Bytes per value.

        Returns:
            uint8, shape ``[n * size]``.
        """
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

    def array(self, starts: Int64, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Copy values of a dtype, possibly a subarray dtype, to an array of shape ``[n, *dtype.shape]``."""
        rows = self.gather(starts, dtype.itemsize)
        return rows.view(dtype.base).reshape((len(starts), *dtype.shape))

    def join(self, starts: Int64, sizes: Int64) -> Bytes1D:
        """Copy short values back to back, each followed by a zero byte.

        Args:
            starts: Offset of each value, shape ``[n]``, in any order.
            sizes: Bytes of each value, shape ``[n]``.
        """
        self._check_inside(starts, starts + sizes)
        padded_sizes = sizes + 1
        ends = np.cumsum(padded_sizes)
        places = np.repeat(starts - (ends - padded_sizes), padded_sizes)
        places += np.arange(len(places))
        places[ends - 1] = 0  # the byte behind a value may be out of bounds
        copied: Bytes1D = self._data[places] if len(self._data) else np.empty(len(places), np.uint8)
        copied[ends - 1] = 0
        return copied

    def slices(self, starts: Int64, sizes: Int64) -> list[memoryview]:
        """Return views of values.

        Args:
            starts: Offset of each value, shape ``[n]``, in any order.
            sizes: Bytes of each value, shape ``[n]``.
        """
        ends = starts + sizes
        self._check_inside(starts, ends)
        data = memoryview(self._data)  # type: ignore[arg-type]  # an array is a buffer
        return [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]

    def values(self, starts: Int64, sizes: Int64) -> Sequence[memoryview | StoredRange]:
        """Return what a partial encoding decodes; arguments are those of `slices`."""
        return self.slices(starts, sizes)

    def _check_inside(self, starts: Int64, ends: Int64) -> None:
        if len(ends) and (starts.min() < 0 or ends.max() > len(self) or (ends < starts).any()):
            raise DecodeError(f"a value lies outside the {len(self)} bytes of its shard")


class Encoding(Plugin):
    """The stored form of the values of a column.

    An instance belongs to one column, is made by `from_spec`, is thread-safe, pickles, and holds no open
    resources. Subclasses define `encode` and `decode`. A subclass of another encoding that overrides one of
    them, but not the methods for many values, gets those of this class, which call it for each value.

    Attributes:
        unsafe: Whether decoding can execute code from the data.
        size: Bytes of every encoded value if all have the same size, else None.
        dtype: Dtype of values stored as plain memory of a NumPy scalar or array of fixed shape (a
            subarray dtype such as ``("<u2", (2048,))``). Batches of such a column are copied, without a
            call per value.
        item: Dtype of a value or of its items, if it is known where `dtype` is None: of arrays that differ
            in shape, of numbers stored as text, where values may be None; ``"U"`` for text.
        list_item: Dtype of the numbers of values that are lists of them, which a decoder gets as plain
            memory, as it does in Parquet; a subarray dtype if all lists have one length. None for other
            values.
        decoded_bytes: Memory of a decoded value, if known and possibly far larger than the stored value;
            batches are then decoded in smaller parts.
        max_value_bytes: Maximum bytes of a decoded value, for encodings that decompress values or allocate
            what their headers announce. They raise `streamplug.plugin_kit.codec_errors.large_value_error`
            before they allocate more.
        partial: Whether `decode` also takes a `StoredRange`. Values are then read in parts with
            ``access="range"``, if the format allows it.
        releases_gil: Whether decoding takes most of its time without the interpreter lock, as that of images
            does. ``num_workers="auto"`` of a loader then chooses threads.
        lazy: Whether decoded values are `LazyValue`, or lists, tuples or dicts of them. Readers tell those
            where they are stored.
    """

    unsafe: ClassVar[bool] = False
    partial: ClassVar[bool] = False
    releases_gil: ClassVar[bool] = False
    lazy: bool = False
    size: int | None = None
    dtype: np.dtype[Any] | None = None
    item: np.dtype[Any] | None = None
    list_item: np.dtype[Any] | None = None
    decoded_bytes: int | None = None
    max_value_bytes: int = MAX_VALUE_BYTES
    # An attribute rather than an argument of `decode`: values pay nothing for it, and streams may differ.

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if bypasses(cls, "bound_decoder", "decode"):
            cls.bound_decoder = Encoding.bound_decoder  # type: ignore[method-assign]  # it calls `decode`
        # An inherited constructor may set the dtype.
        sets_dtype = ("dtype", "__init__", "from_spec")
        plain = cls.decode_batch is Encoding.decode_batch and any(
            bypasses(cls, member, "decode") for member in sets_dtype
        )
        if plain or bypasses(cls, "decode_batch", "decode"):
            cls.decode_batch = Encoding._decode_each  # type: ignore[method-assign]  # as above
            if bypasses(cls, "unbatch", "decode"):
                cls.unbatch = Encoding.unbatch  # type: ignore[method-assign]  # of a list
        if bypasses(cls, "encode_batch", "encode"):
            cls.encode_batch = Encoding.encode_batch  # type: ignore[method-assign]  # it calls `encode`

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

    def with_max_value_bytes(self, size: int) -> Encoding:
        """Return a copy of this encoding, and of those that are its attributes, with another bound."""
        bounded = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, Encoding):
                bounded.__dict__[name] = part.with_max_value_bytes(size)
        bounded.__dict__["max_value_bytes"] = size
        return bounded

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

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        """Decode many values of one buffer.

        Args:
            buffer: Buffer of the values.
            starts: Offset of each value, shape ``[n]``.
            sizes: Bytes of each value, shape ``[n]``.

        Returns:
            An array of shape ``[n, ...]`` or a list of n values, without views of `buffer`.

        Raises:
            DecodeError: As for `decode`.
        """
        if self.dtype is not None:
            return buffer.array(starts, self.dtype)
        return self._decode_each(buffer, starts, sizes)

    def _decode_each(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        values = (buffer.values if self.partial else buffer.slices)(starts, sizes)
        return [self.decode(data) for data in values]  # type: ignore[arg-type]  # a partial encoding takes ranges

    def unbatch(self, batch: ColumnValues) -> Sequence[Any]:
        """Return the single values of a decoded batch, each as `decode` returns it."""
        return batch  # type: ignore[return-value]  # a ColumnValues can be indexed


def bypasses(cls: type[Encoding], member: str, method: str) -> bool:
    """Return whether an inherited member was made for an `encode` or `decode` that a class has overridden.

    Args:
        cls: Class of an encoding.
        member: Name of a method or an attribute, such as ``"lengths"`` of a `VectorColumn`.
        method: ``"encode"`` or ``"decode"``.
    """
    owner = next(base for base in cls.__mro__ if member in vars(base))
    overridden = getattr(owner, method, None)
    return overridden not in (None, getattr(Encoding, method), getattr(cls, method))


Decoder: TypeAlias = Callable[[Encoding], Encoding]
"""A user's decoder of a column: maps the column's encoding to the one to decode with.

The result decodes values of the same size. Decoders pickle (with cloudpickle if need be); equal decoders
decode alike.
"""


class VectorColumn(ABC):
    """A mixin of encodings whose values end with the items of a one-dimensional array.

    Their items can be counted and partly read without reading the whole value.

    Attributes:
        item: Dtype of the items if it is fixed, else None; the reader then specifies it.
    """

    item: np.dtype[Any] | None = None

    @abstractmethod
    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        """Return the number of items of values, from their sizes.

        Args:
            sizes: Bytes of each encoded value, shape ``[n]``.
            dtype: Dtype of the items.

        Returns:
            Items of each, shape ``[n]``; -1 where no vector has that size.
        """

    def are_vectors(
        self, buffer: GatherBuffer, starts: Int64, lengths: Int64, dtype: np.dtype[Any]
    ) -> NDArray[np.bool_]:
        """Return whether each value is a vector of the given length; the default is True for all.

        Args:
            buffer: Buffer of the values.
            starts: Offset of each value, shape ``[n]``.
            lengths: Items of each value, as `lengths` returned them, shape ``[n]``.
            dtype: Dtype of the items.
        """
        return np.ones(len(starts), bool)
