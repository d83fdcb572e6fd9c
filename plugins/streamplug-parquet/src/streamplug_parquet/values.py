"""Encodings of Parquet columns: conversion of values to and from Arrow arrays.

They are never given encoded bytes, as Arrow reads and writes the files. Single values are checked and
copied when they are written, and converted to arrays later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamplug.builtin import Bytes, Str
from streamplug.errors import ConfigError, DecodeError, EncodeError, EncodeTypeError
from streamplug.interfaces import Encoding
from streamplug.plugin_kit import short_repr
from streamplug_parquet.arrow_conversion import (
    MAX_OFFSET,
    TIME_TYPES,
    arrow_array,
    masked_error,
    nat_error,
    only,
    present,
    refuse_nat,
    stacked,
    strict,
)
from streamplug_parquet.nested import (
    ValueCopier,
    as_pairs,
    check_array_type,
    check_cast,
    check_keys,
    check_values,
    contains_map,
    value_copier,
    writable,
)
from streamplug_parquet.sizes import HEAD, sizes_of, width_of
from streamplug_parquet.types import spec_of

_ARROW = (pa.Array, pa.ChunkedArray)


class ArrowValue(Encoding):
    """Values of one Arrow type.

    Attributes:
        type: The type, as returned by `types.plain`.
        nullable: Whether values may be None.
        width: Bytes of each value, None if they vary.
    """

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        """Store values of a type, or None if `nullable`."""
        self.type, self.nullable = type_, nullable
        self.width = width_of(type_)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), nullable=self.nullable), (self.type,)

    @property
    def written(self) -> pa.DataType:
        """The type in the file."""
        return self.type

    @property
    def none(self) -> tuple[None, int]:
        """None and its size in bytes."""
        return None, int(np.broadcast_to(sizes_of(pa.nulls(1, self.type)), 1)[0])

    def copy_value(self, value: Any) -> tuple[Any, int]:
        """Return an immutable copy of a value, and its size in bytes.

        Raises:
            EncodeError: If the value is of another type or None.
        """
        body = self.encode(value)
        return body, HEAD + len(body)

    def to_array(self, copies: Sequence[Any]) -> Any:
        """Return an array of copied values, which may be None."""
        return pa.array(copies, self.type)

    def column(self, values: Any) -> Any:
        """Return an array of the values of a list or an array.

        Raises:
            EncodeError: If a value has another type.
        """
        return strict(values, self.type, nullable=self.nullable)

    def encode(self, value: Any) -> bytes:
        raise EncodeError(f"values of {spec_of(self.type)} are not bytes before they are in a file")

    def decode(self, data: memoryview) -> Any:
        raise DecodeError(f"values of {spec_of(self.type)} are not bytes out of a file")


class Fixed(ArrowValue):
    """Numbers, booleans, temporal values, and arrays of them with one shape.

    Attributes:
        base: The dtype of a number.
        shape: Shape of a value.
        item: The dtype of a value.
        inner: The Arrow type of a number.
        python: Python type that scalars are copied as; None if values are copied as bytes.
    """

    def __init__(
        self, type_: pa.DataType, *, nullable: bool, list_type: pa.DataType | None = None
    ) -> None:
        """Store values of a type, or None if `nullable`; `list_type` is that of lists of them, if any."""
        super().__init__(type_, nullable=nullable)
        dtype_and_shape = fixed_of(type_)
        if dtype_and_shape is None:
            raise ConfigError(f"{type_} has values of several sizes")
        self.base: np.dtype[Any] = dtype_and_shape[0]
        self.shape: tuple[int, ...] = dtype_and_shape[1]
        self.item: np.dtype[Any] = np.dtype((self.base, self.shape)) if self.shape else self.base
        self.inner = type_
        for _ in self.shape:
            self.inner = self.inner.value_type
        if self.shape:
            self.list_item = self.item
        self._list_type = type_ if self.shape and list_type is None else list_type
        if not nullable:
            self.size, self.dtype = self.item.itemsize, self.item
        plain = not self.shape and self.base.kind in "biuf"
        may_be_none = nullable and not self.shape
        self._times = TIME_TYPES.get(self.base.kind, ()) if may_be_none else ()
        self.python: type | None = type(np.zeros((), self.base).item()) if plain else None

    @property
    def written(self) -> pa.DataType:
        type_ = self.inner
        for size in reversed(self.shape):
            type_ = pa.list_(pa.field("element", type_, nullable=False), size)
        return type_

    def copy_value(self, value: Any) -> tuple[Any, int]:
        size = self.width or 0
        if isinstance(value, self._times) and value != value:  # noqa: PLR0124 - only NaT is unequal
            return self.none
        if self.python is None:
            return self.encode(value), size
        if not (isinstance(value, np.generic) and value.dtype == self.base):
            value = self.numbers([value])[0]
        return value.item(), size

    def to_array(self, copies: Sequence[Any]) -> Any:
        if self.python is not None:
            return pa.array(copies, self.type)
        valid = present(copies) if self.nullable else None
        if valid is not None:
            zero = bytes(self.item.itemsize)
            copies = [zero if item is None else item for item in copies]
        return self.array_of(np.frombuffer(b"".join(copies), self.item), valid)

    def column(self, values: Any) -> Any:
        array = self.items(values)
        if self.shape:
            refuse_nat(array, self.type)
        return array

    def items(self, values: Any) -> Any:
        """Return an array of values, as `column` does, which may have NaT in arrays."""
        if not self.shape:
            return strict(values, self.type, nullable=self.nullable, list_type=self._list_type)
        valid = present(values) if self.nullable else None
        numbers = np.zeros((len(values), *self.shape), self.base)
        numbers[... if valid is None else valid] = self.numbers(
            values if valid is None else only(values, valid)
        )
        return self.array_of(numbers, valid)

    def encode(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray) and value.dtype == self.base and value.shape == self.shape:
            if isinstance(value, np.ma.MaskedArray):
                raise masked_error()
        else:
            value = self.numbers([value])
        if self.base.kind in TIME_TYPES and np.isnat(value).any():
            raise nat_error(self.type)
        return value.tobytes()  # type: ignore[no-any-return]  # NumPy says Any

    def decode(self, data: memoryview) -> Any:
        return self.array_of(np.frombuffer(data, self.item), None)[0].as_py()

    def numbers(self, values: Any) -> NDArray[Any]:
        """Return values, none of them None, as an array of shape ``[n, *shape]``."""
        count = len(values)
        if not count:
            return np.empty((0, *self.shape), self.base)
        if isinstance(values, np.ma.MaskedArray):
            raise masked_error()
        if self.shape:
            values = stacked(values, self.shape).reshape(-1)
        if not (isinstance(values, np.ndarray) and values.dtype == self.base):
            array = strict(values, self.inner, list_type=self._list_type)
            values = array.to_numpy(zero_copy_only=False)
        converted: NDArray[Any] = values.astype(self.base, copy=False).reshape(count, *self.shape)
        return converted

    def array_of(self, numbers: NDArray[Any], valid: NDArray[np.bool_] | None) -> pa.Array:
        """Return an Arrow array of numbers of shape ``[n, *shape]``, null where `given` is False."""
        mask = None if valid is None else ~valid
        if not self.shape:
            return pa.array(numbers, mask=mask).cast(self.type)
        array = pa.array(numbers.reshape(-1)).cast(self.inner)
        types, type_ = [], self.written
        for _ in self.shape:
            types.append(type_)
            type_ = type_.value_type
        for depth in reversed(range(1, len(types))):
            array = pa.FixedSizeListArray.from_arrays(array, type=types[depth])
        missing = None if mask is None else pa.array(mask)
        return pa.FixedSizeListArray.from_arrays(array, type=types[0], mask=missing)


class Text(ArrowValue, Str):
    """Text."""

    encode = Str.encode
    decode = Str.decode

    def copy_value(self, value: Any) -> tuple[Any, int]:
        size = HEAD + len(self.encode(value))
        return str.__str__(value), size  # str() returns something else of an enumeration's member


class Binary(ArrowValue, Bytes):
    """Bytes."""

    encode = Bytes.encode
    decode = Bytes.decode

    def copy_value(self, value: Any) -> tuple[Any, int]:
        body = bytes(self.encode(value))
        return body, HEAD + len(body) if self.width is None else self.width


class FixedBinary(Binary):
    """Bytes of one length."""

    def encode(self, value: Any) -> bytes:
        body = super().encode(value)
        if len(body) != self.type.byte_width:
            raise EncodeError(f"takes {self.type.byte_width} bytes, got {len(body)}")
        return body


class Lists(ArrowValue):
    """Lists of numbers or other values of fixed size."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._of = Fixed(type_.value_type, nullable=False, list_type=type_)
        self._count = self._of.width or 1

        if not self._of.shape:
            self.list_item = self._of.item

    @property
    def number(self) -> np.dtype[Any]:
        """The dtype of an item of a list, which may itself have a shape."""
        return self._of.item

    def copy_value(self, value: Any) -> tuple[Any, int]:
        body = self.encode(value)
        return body, HEAD + len(body) // self._of.item.itemsize * self._count

    def to_array(self, copies: Sequence[Any]) -> Any:
        width = self._of.item.itemsize
        bodies = [body for body in copies if body is not None]
        numbers = np.frombuffer(b"".join(bodies), self._of.item)
        lengths = [0 if body is None else len(body) // width for body in copies]
        return self._lists(self._of.array_of(numbers, None), lengths, copies)

    def column(self, values: Any) -> Any:
        if isinstance(values, _ARROW):
            lists = arrow_array(values)
            if isinstance(lists, (pa.ListArray, pa.LargeListArray)):
                if lists.null_count and not self.nullable:
                    raise EncodeTypeError(f"takes no None, of which there are {lists.null_count}")
                lengths = lists.value_lengths().fill_null(0)
                return self._lists(self._of.items(lists.flatten()), lengths, lists)
            values = lists.to_pylist()
        values = list(values)
        some = [item for item in values if item is not None] if self.nullable else values
        lengths = [0 if item is None else len(item) for item in values if self._check(item)]
        if all(type(item) is list for item in some):
            items = self._of.items(list(chain.from_iterable(some)))
        else:
            bodies = b"".join(map(self.encode, some))
            items = self._of.array_of(np.frombuffer(bodies, self._of.item), None)
        return self._lists(items, lengths, values)

    def encode(self, value: Any) -> bytes:
        self._check(value, nullable=False)
        if isinstance(value, np.ma.MaskedArray):
            raise masked_error()
        if isinstance(value, np.ndarray):
            of = self._of
            if value.ndim != 1 and not of.shape:
                raise EncodeError(f"takes arrays of one axis, got the shape {value.shape}")
            if value.dtype == of.base and value.shape[1:] == of.shape:
                return value.tobytes()
        return self._of.numbers(value).tobytes()

    def _check(self, value: Any, *, nullable: bool | None = None) -> bool:
        if isinstance(value, (list, tuple, np.ndarray, pa.Array)):
            return True
        if value is None and (self.nullable if nullable is None else nullable):
            return True
        raise EncodeTypeError(
            f"takes lists or arrays of {self._of.type}, got {type(value).__name__}: {short_repr(value)}"
        )

    def _lists(self, items: pa.Array, lengths: Any, values: Any) -> pa.Array:
        """Return lists of items with the given lengths; None where `values` has None."""
        ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        if ends[-1] > MAX_OFFSET:
            raise EncodeError(
                "a batch holds less than 2^31 numbers in its lists; have it fewer rows"
            )
        mask = pa.array(~present(values)) if self.nullable else None
        offsets = pa.array(ends.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, items, mask=mask).cast(self.type)


class Nested(ArrowValue):
    """Lists, maps and structs of any types but temporal ones and decimals."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._copier: ValueCopier | None = None

    def copy_value(self, value: Any) -> tuple[Any, int]:
        if self._copier is None:
            writable(self.type)
            self._copier = value_copier(self.type)
        copy_item = self._copier
        if value is not None:
            try:
                return copy_item(value)
            except (TypeError, ValueError):  # Arrow may be able to convert it
                pass
        array = self.column([value])
        if array.null_count:
            raise EncodeTypeError("takes no None; its encoding would end with a question mark")
        return copy_item(array[0].as_py())

    def column(self, values: Any) -> Any:
        writable(self.type)
        if not isinstance(values, _ARROW):
            values = list(values)
            check_values(values, self.type)
            if contains_map(self.type):
                values = [as_pairs(value, self.type) for value in values]
        try:
            array = pa.array(values, self.type) if isinstance(values, list) else arrow_array(values)
            if array.type != self.type:
                check_array_type(array.type, self.type)
                found, array = array, array.cast(self.type)
                check_cast(found, array)
            check_keys(array)
        except EncodeError:
            raise
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise EncodeTypeError(f"takes values of {spec_of(self.type)}: {error}") from error
        if array.null_count and not self.nullable:
            raise EncodeTypeError("takes no None; its encoding would end with a question mark")
        return array


class FileStruct(Nested, Bytes):
    """A struct of a file's bytes and path, as Hugging Face stores images and audio.

    Values are dicts, unless decoded by an encoding that takes bytes, such as `ImageArrays`.
    """

    encode = ArrowValue.encode
    decode = ArrowValue.decode
    bound_decoder = Encoding.bound_decoder
    decode_batch = Encoding.decode_batch


class Decimals(ArrowValue):
    """Decimal numbers."""

    def copy_value(self, value: Any) -> tuple[Any, int]:
        return strict([value], self.type)[0].as_py(), self.width or 0


def fixed_of(type_: pa.DataType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the dtype and shape of values of a type as an array, or None if they vary."""
    of, shape = pa.types, []
    while of.is_fixed_size_list(type_):
        shape.append(type_.list_size)
        type_ = type_.value_type
    if not 0 < prod(shape) < MAX_OFFSET // 16:
        return None
    if of.is_boolean(type_) or of.is_integer(type_) or of.is_floating(type_):
        name = {"halffloat": "f2", "float": "f4", "double": "f8"}.get(str(type_), str(type_))
        return np.dtype(name).newbyteorder("<"), tuple(shape)
    if of.is_timestamp(type_) or of.is_duration(type_):
        letter = "M" if of.is_timestamp(type_) else "m"
        return np.dtype(f"<{letter}8[{type_.unit}]"), tuple(shape)
    if of.is_date(type_):
        return np.dtype("<M8[D]" if of.is_date32(type_) else "<M8[ms]"), tuple(shape)
    return None
