"""How values of columns are stored in the rows that a writer collects, and made arrays of Arrow again.

These are the encodings of Parquet: they never see a file, which Arrow reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamplug.builtin.encodings.plain import Bytes, Str
from streamplug.errors import ConfigError, EncodeError, EncodeTypeError
from streamplug.interfaces import Encoding
from streamplug.types import Bytes1D, Int64
from streamplug_parquet.given import arrow_array, stacked, strict
from streamplug_parquet.types import spec_of

_PACKED: Mapping[type, str] = {int: "bBhHiIqQ", float: "d", bool: "?"}
_MOST = (1 << 31) - 1


class Value(Encoding):
    """Values of one type of Arrow.

    Attributes:
        type: The type, as `types.plain` gives it.
        nullable: Whether values may be None.
        width: Bytes of each in a row, None if they differ.
    """

    width: int | None = None

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        """Store values of a type, or None if they are `nullable`."""
        self.type, self.nullable = type_, nullable

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), nullable=self.nullable), (self.type,)

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        """Return an array of stored values.

        Args:
            bodies: They, back to back; of a `width`, an array of shape ``[n]`` and their dtype.
            sizes: Bytes of each, shape ``[n]``.
            given: Which of them are not None, if there are such.
        """
        raise NotImplementedError

    @property
    def written(self) -> pa.DataType:
        """The type that a file gets."""
        return self.type

    def decode(self, data: memoryview) -> Any:
        sizes = np.array([len(data)], np.int64)
        bodies = data if self.width is None else np.frombuffer(data, self.item)
        return self.array(bodies, sizes, None)[0].as_py()

    item: Any = None


class Fixed(Value):
    """Numbers, truth values, times, and arrays of such of one shape.

    Attributes:
        base: The dtype of a number.
        shape: How many of them a value has, along each axis.
        item: The dtype of a value.
        inner: The type of a number.
        python: What Python has such a number as.
        letter: What `struct` packs one with, without changing it; empty if that is none.
    """

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        found = fixed_of(type_)
        if found is None:
            raise ConfigError(f"{type_} has values of several sizes")
        self.base: np.dtype[Any] = found[0]
        self.shape: tuple[int, ...] = found[1]
        self.item = np.dtype((self.base, self.shape)) if self.shape else self.base
        self.width = self.item.itemsize
        self.inner = type_
        for _ in self.shape:
            self.inner = self.inner.value_type
        if not nullable:
            self.size, self.dtype = self.width, self.item
        self.python: type = type(np.zeros((), self.base).item())
        letter = self.base.char.replace("l", "q").replace("L", "Q")
        packed = not self.shape and letter in _PACKED.get(self.python, "")
        self.letter = letter if packed else ""

    @property
    def written(self) -> pa.DataType:
        type_ = self.inner
        for size in reversed(self.shape):
            type_ = pa.list_(pa.field("element", type_, nullable=False), size)
        return type_

    def encode(self, value: Any) -> bytes:
        return self.encode_batch([value]).tobytes()

    def encode_batch(self, values: Any) -> Bytes1D:
        count = len(values)
        if self.shape and count:
            values = stacked(values, self.shape).reshape(-1)
        if isinstance(values, np.ndarray) and values.dtype == self.base:
            numbers = values
        else:
            numbers = strict(values, self.inner).to_numpy(zero_copy_only=False)
        flat = np.ascontiguousarray(numbers.astype(self.base, copy=False)).reshape(-1)
        stored: Bytes1D = flat.view(np.uint8).reshape(count * self.item.itemsize)
        return stored

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        mask = None if given is None else ~given
        numbers = np.ascontiguousarray(bodies)
        if not self.shape:
            return pa.array(numbers, mask=mask).cast(self.type)
        found = pa.array(numbers.reshape(-1)).cast(self.inner)
        types, type_ = [], self.written
        for _ in self.shape:
            types.append(type_)
            type_ = type_.value_type
        for depth in reversed(range(1, len(types))):
            found = pa.FixedSizeListArray.from_arrays(found, type=types[depth])
        gone = None if mask is None else pa.array(mask)
        return pa.FixedSizeListArray.from_arrays(found, type=types[0], mask=gone)


class Text(Value, Str):
    """Text."""

    def encode_batch(self, values: Any) -> list[bytes]:
        if pieces := _pieces(values, self.type):
            return pieces
        try:
            return list(map(str.encode, values))
        except (TypeError, UnicodeEncodeError):  # one is not text: which, they say one by one
            return [self.encode(value) for value in values]

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        buffers = [_bitmap(given), _offsets(sizes), pa.py_buffer(bodies)]
        return pa.Array.from_buffers(self.type, len(sizes), buffers)

    decode = Str.decode


class Binary(Value, Bytes):
    """Bytes."""

    array = Text.array

    def encode_batch(self, values: Any) -> list[bytes]:
        return _pieces(values, self.type) or [self.encode(value) for value in values]

    decode = Bytes.decode


class FixedBinary(Binary):
    """As many bytes for each value."""

    def encode(self, value: Any) -> bytes:
        body = super().encode(value)
        if len(body) != self.type.byte_width:
            raise EncodeError(f"takes {self.type.byte_width} bytes, got {len(body)}")
        return body

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        ends = accumulate(sizes.tolist(), initial=0)
        values = [bytes(bodies[start:stop]) for start, stop in pairwise(ends)]
        return pa.array(_with_none(values, given), self.type)


class Lists(Value):
    """Lists of numbers, or other values that have one size."""

    def __init__(self, type_: pa.DataType, *, nullable: bool) -> None:
        super().__init__(type_, nullable=nullable)
        self._of = Fixed(type_.value_type, nullable=False)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, (list, tuple, np.ndarray, pa.Array)):
            raise EncodeTypeError(
                f"takes lists or arrays of {self._of.type}, got {type(value).__name__}: {value!r:.80}"
            )
        if isinstance(value, np.ndarray) and value.ndim != 1 and not self._of.shape:
            raise EncodeError(f"takes arrays of one axis, got the shape {value.shape}")
        return self._of.encode_batch(value).tobytes()

    def encode_batch(self, values: Any) -> list[bytes]:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            lists = arrow_array(values)
            if not isinstance(lists, (pa.ListArray, pa.LargeListArray)):
                values = lists.to_pylist()
            else:
                body = memoryview(self._of.encode_batch(lists.flatten()))  # type: ignore[arg-type]  # an array is a buffer
                lengths = np.asarray(lists.value_lengths()) * (self._of.width or 0)
                ends = accumulate(lengths.tolist(), initial=0)
                return [bytes(body[start:stop]) for start, stop in pairwise(ends)]
        return [self.encode(value) for value in values]

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        items = self._of.array(np.frombuffer(bodies, self._of.item), sizes, None)
        offsets = pa.Array.from_buffers(
            pa.int32(), len(sizes) + 1, [None, _offsets(sizes // (self._of.width or 1))]
        )
        mask = None if given is None else pa.array(~given)
        return pa.ListArray.from_arrays(offsets, items, mask=mask).cast(self.type)


class Nested(Value):
    """Lists and structs of anything that MessagePack can hold."""

    def encode(self, value: Any) -> bytes:
        return self.encode_batch([value])[0]

    def encode_batch(self, values: Any) -> list[bytes]:
        writable(self.type)
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = list(values)
            for value in values:
                _check(value, self.type)
        try:
            found = pa.array(values, self.type) if isinstance(values, list) else arrow_array(values)
            if found.type != self.type:
                found = found.cast(self.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise EncodeTypeError(f"takes values of {spec_of(self.type)}: {error}") from error
        if found.null_count:
            raise EncodeTypeError("takes no None; its encoding would end with a question mark")
        return list(map(msgspec.msgpack.encode, found.to_pylist()))

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        view = memoryview(bodies)
        ends = accumulate(sizes.tolist(), initial=0)
        values = [
            msgspec.msgpack.decode(view[start:stop]) if stop > start else None
            for start, stop in pairwise(ends)
        ]
        return pa.array(_with_none(values, given), self.type)


class File(Nested, Bytes):
    """A struct of the bytes of a file, and its path: images and audio as Hugging Face has them.

    It is a dict, unless it is decoded by something that takes bytes, such as `ImageArrays`.
    """

    decode = Value.decode
    decode_in = Encoding.decode_in
    decode_batch = Encoding.decode_batch
    encode = Nested.encode
    encode_batch = Nested.encode_batch


class Decimals(Value):
    """Decimal numbers."""

    def encode(self, value: Any) -> bytes:
        return str(strict([value], self.type)[0].as_py()).encode()

    def array(self, bodies: Any, sizes: Int64, given: NDArray[np.bool_] | None) -> pa.Array:
        ends = accumulate(sizes.tolist(), initial=0)
        texts = [bytes(bodies[start:stop]).decode() for start, stop in pairwise(ends)]
        return pa.array([Decimal(text) if text else None for text in texts], self.type)


def fixed_of(type_: pa.DataType) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the dtype and shape that values of a type have as an array, or None."""
    of, shape = pa.types, []
    while of.is_fixed_size_list(type_):
        shape.append(type_.list_size)
        type_ = type_.value_type
    if not 0 < prod(shape) < _MOST // 16:
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


def is_file(type_: pa.DataType) -> bool:
    """Say whether a type is that of files: bytes, and perhaps a path."""
    if not pa.types.is_struct(type_):
        return False
    fields = {field.name: field.type for field in type_}
    return fields.get("bytes") == pa.binary() and fields.keys() <= {"bytes", "path"}


def writable(type_: pa.DataType) -> None:
    """Refuse types that `Nested` cannot write.

    Raises:
        ConfigError: If it is one.
    """
    of = pa.types
    if of.is_struct(type_):
        for field in type_:
            writable(field.type)
    elif of.is_list(type_) or of.is_fixed_size_list(type_):
        writable(type_.value_type)
    elif not (
        of.is_boolean(type_)
        or of.is_integer(type_)
        or of.is_floating(type_)
        or of.is_string(type_)
        or of.is_binary(type_)
    ):
        raise ConfigError(f"{spec_of(type_)} is read, but not written, at this place of a column")


def _check(value: Any, type_: pa.DataType) -> None:
    """Refuse fields that a struct does not have, which Arrow would drop.

    Raises:
        EncodeError: If there are some.
    """
    if isinstance(value, dict) and pa.types.is_struct(type_):
        fields = {field.name: field.type for field in type_}
        if surplus := [name for name in value if name not in fields]:
            raise EncodeError(f"takes the fields {list(fields)}, got {surplus}, too")
        for name, inner in value.items():
            _check(inner, fields[name])
    elif isinstance(value, (list, tuple)) and _of_nested(type_):
        for inner in value:
            _check(inner, type_.value_type)


def _of_nested(type_: pa.DataType) -> bool:
    is_list = pa.types.is_list(type_) or pa.types.is_fixed_size_list(type_)
    return is_list and bool(pa.types.is_nested(type_.value_type))


def _pieces(values: Any, type_: pa.DataType) -> list[bytes]:
    """Return the bytes of an array of text or bytes; nothing for what is none."""
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        return []
    found = strict(values, type_)
    if not pa.types.is_binary(found.type):
        found = found.cast(pa.binary())
    pieces: list[bytes] = found.to_pylist()
    return pieces


def _offsets(sizes: Int64) -> pa.Buffer:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] > _MOST:
        raise EncodeError("a row group holds less than 2 GiB of one column; have it fewer rows")
    return pa.py_buffer(ends.astype(np.int32))


def _bitmap(given: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if given is None else pa.py_buffer(np.packbits(given, bitorder="little"))


def _with_none(values: Sequence[Any], given: NDArray[np.bool_] | None) -> Sequence[Any]:
    if given is None:
        return values
    return [value if has else None for value, has in zip(values, given.tolist())]
