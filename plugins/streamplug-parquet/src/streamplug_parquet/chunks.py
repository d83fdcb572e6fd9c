"""Decoded column chunks, from which single values are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from streamplug_files import maps_as_dicts, value_sizes

from streamplug.errors import DecodeError
from streamplug.interfaces import Column, Encoding
from streamplug.plugin_kit import (
    decode_values,
    merge_values,
    undecodable_error,
)
from streamplug.types import ColumnValues, Int64
from streamplug_parquet.budget import VARIABLE
from streamplug_parquet.file_directory import FileDirectory, directory_of
from streamplug_parquet.memory_bounds import decoded_limit
from streamplug_parquet.nested import is_file
from streamplug_parquet.values import ArrowValue, Binary, Fixed, Text, fixed_of

_MIN_ROWS_FOR_ARROW = 64
"""Values from which on it is faster to let Arrow make them; its call takes 15 µs."""
_MAX_ARROW_BYTES = 2**31 - 1  # of the values of an array of text


class Chunk(ABC):
    """The values of a column in one row group.

    Attributes:
        nbytes: Approximate size in memory.
    """

    nbytes: int

    @abstractmethod
    def one(self, row: int) -> Any:
        """Return one value."""

    @abstractmethod
    def take(self, rows: Int64) -> Sequence[Any] | NDArray[Any]:
        """Return values of rows: an array if the column always yields arrays, else a list."""


class Numbers(Chunk):
    """Values of fixed size."""

    def __init__(self, values: NDArray[Any]) -> None:
        self._values, self.nbytes = values, values.nbytes

    def one(self, row: int) -> Any:
        value = self._values[row]
        return value.copy() if isinstance(value, np.ndarray) else value

    def take(self, rows: Int64) -> NDArray[Any]:
        return self._values[rows]


class Pieces(Chunk):
    """Values of variable size in one buffer: text, bytes, or input of another encoding."""

    def __init__(
        self,
        data: memoryview,
        starts: Int64,
        sizes: Int64,
        valid: NDArray[np.bool_] | None,
        kind: Any,
        *,
        is_dictionary: bool = False,
        array: pa.Array | None = None,
    ) -> None:
        """Take the places of values in a buffer.

        Args:
            data: The buffer.
            starts: Where each value begins in it.
            sizes: Number of bytes of each.
            valid: Which values are not None; None for all.
            kind: Makes a value of its bytes.
            is_dictionary: Whether several values may have the same place.
            array: The same values, if Arrow makes the same of them.
        """
        self._data, self._kind = data, kind
        self._is_dictionary, self._array = is_dictionary, array
        self._starts, self._stops = memoryview(starts), memoryview(starts + sizes)  # type: ignore[arg-type]  # an array is a buffer
        self._valid = valid
        self.nbytes = len(data) + 16 * len(starts)

    def one(self, row: int) -> Any:
        if self._valid is not None and not self._valid[row]:
            return None
        return self._kind(self._data[self._starts[row] : self._stops[row]])

    def take(self, rows: Int64) -> list[Any]:
        fits_arrow = not self._is_dictionary or self._checked_size(rows) <= _MAX_ARROW_BYTES
        if self._array is not None and len(rows) >= _MIN_ROWS_FOR_ARROW and fits_arrow:
            array, places = self._array, pa.array(rows)
            if self._is_dictionary:  # which itself makes a list thirty times slower
                array, places = array.dictionary, array.indices.take(places)
            values: list[Any] = array.take(places).to_pylist()
            return values
        if self._valid is not None:
            return [self.one(row) for row in rows.tolist()]
        data, starts, stops = self._data, self._starts, self._stops
        parts = [data[starts[row] : stops[row]] for row in rows.tolist()]
        return parts if self._kind is _copied else list(map(self._kind, parts))

    def _checked_size(self, rows: Int64) -> int:
        """Return the bytes of rows; refuse those that take too much memory: a dictionary has values once."""
        size = int((np.asarray(self._stops)[rows] - np.asarray(self._starts)[rows]).sum())
        _check_limit(len(rows), size, decoded_limit(len(self._data)))
        return size


class Files(Chunk):
    """Files of which some have a path but no bytes, as Hugging Face stores images and audio."""

    def __init__(self, content: Pieces, paths: Pieces, directory: FileDirectory | None) -> None:
        """Read the paths of files without `content` from a directory, or refuse them."""
        self._content, self._paths, self._directory = content, paths, directory
        self.nbytes = content.nbytes + paths.nbytes

    def one(self, row: int) -> Any:
        content = self._content.one(row)
        if content is not None or (path := self._paths.one(row)) is None:
            return content
        if self._directory is None:
            raise DecodeError(
                f"the value has no bytes, but the path {path!r:.200}; to read it, name the directory of the "
                "files: decoders={…: FileDirectory('directory', decoder)} of streamplug_parquet"
            )
        return self._directory.read(path)

    def take(self, rows: Int64) -> list[Any]:
        return [self.one(row) for row in rows.tolist()]


class Others(Chunk):
    """Values that Arrow converts to Python objects."""

    def __init__(self, array: pa.Array, limit: int) -> None:
        """Convert values of an array, up to `limit` bytes of Python objects at once."""
        self._array, self.nbytes, self._limit = array, array.nbytes, limit
        self._convert = maps_as_dicts(array.type)
        sizes = value_sizes(array)
        total = sizes * len(array) if isinstance(sizes, float) else float(sizes.sum())
        # Nested values take many times their bytes in the file as objects.
        self._sizes = np.broadcast_to(sizes, len(array)) if total > limit else None

    def one(self, row: int) -> Any:
        if self._sizes is not None:
            _check_limit(1, int(self._sizes[row]), self._limit)
        value = self._array[row].as_py()
        return value if self._convert is None else self._convert(value)

    def take(self, rows: Int64) -> list[Any]:
        if self._sizes is not None:
            _check_limit(len(rows), int(self._sizes[rows].sum()), self._limit)
        values: list[Any] = self._array.take(pa.array(rows)).to_pylist()
        return values if self._convert is None else [self._convert(value) for value in values]


def _check_limit(count: int, size: int, limit: int) -> None:
    """Raise `DecodeError` if values of rows that are read at once take more bytes than the limit."""
    if size > limit:
        raise DecodeError(
            f"{count} values take {size} bytes, more than the limit of {limit}; use a smaller batch_size, or "
            f"set {VARIABLE}={size}"
        )


class Perhaps(Chunk):
    """Nullable temporal values."""

    def __init__(self, values: NDArray[Any], valid: NDArray[np.bool_]) -> None:
        self._values, self._valid = values, valid
        self.nbytes = values.nbytes + valid.nbytes

    def one(self, row: int) -> Any:
        return self._values[row] if self._valid[row] else None

    def take(self, rows: Int64) -> list[Any]:
        return [self.one(row) for row in rows.tolist()]


def chunk_of(column: Column, array: pa.Array, type_: pa.DataType, limit: int) -> Chunk:
    """Return the chunk of a column.

    Args:
        column: The column.
        array: Its values, of type `type_`.
        type_: Type according to the index.
        limit: Maximum bytes of the Python objects that are made of nested values at once.

    Raises:
        DecodeError: If the column's encoding cannot decode the values.
    """
    encoding = column.encoding
    if not isinstance(encoding, ArrowValue):
        return _raw(array, type_, directory_of(encoding))
    if array.null_count and not encoding.nullable:
        raise DecodeError(f"{array.null_count} values are missing, the index says that none is")
    if isinstance(encoding, Fixed):
        temporal = encoding.base.kind in "mM"
        if not encoding.nullable:
            return Numbers(numbers_of(array, encoding))
        if temporal and not encoding.shape:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            return Perhaps(array.to_numpy(zero_copy_only=False), valid)
        return Others(array, limit)
    if isinstance(encoding, Text):
        return _pieces(array, _text)
    if type(encoding) is Binary:
        return _pieces(array, bytes)
    return Others(array, limit)


def numbers_of(array: pa.Array, encoding: Fixed) -> NDArray[Any]:
    """Return values of fixed size as a NumPy array.

    Raises:
        DecodeError: If there are nulls, at any depth.
    """
    count = len(array)
    for _ in encoding.shape:
        array = array.flatten()
        if array.null_count:
            raise DecodeError(
                f"{array.null_count} numbers are missing, the index says that none is"
            )
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False).astype(encoding.base, copy=False)
    return values.reshape(count, *encoding.shape)


def _text(data: memoryview) -> str:
    return str(data, "utf-8")


def _pieces(array: pa.Array, kind: Any) -> Pieces:
    """Return text or bytes from a plain or dictionary array."""
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    which, values = None, array
    if pa.types.is_dictionary(array.type):
        which = array.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        array = array.dictionary
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, bounds, data = array.buffers()
    dtype = np.dtype("<i8" if wide else "<i4")
    if bounds is None or not len(array):
        ends = np.zeros(len(array) + 1, np.int64)
    else:
        ends = np.frombuffer(bounds, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(
            np.int64
        )
    starts, sizes = ends[:-1], np.diff(ends)
    if which is not None:
        if not len(starts):  # all are null
            starts = sizes = np.zeros(1, np.int64)
        starts, sizes = starts[which], sizes[which]
    view = memoryview(b"") if data is None else memoryview(data)
    if len(sizes) and (
        sizes.min() < 0 or starts.min() < 0 or int((starts + sizes).max()) > len(view)
    ):
        raise DecodeError("a value lies outside of its row group")
    return Pieces(
        view,
        np.ascontiguousarray(starts),
        sizes,
        valid,
        kind,
        is_dictionary=which is not None,
        array=None if kind is _copied else values,
    )


def _raw(array: pa.Array, type_: pa.DataType, directory: FileDirectory | None) -> Chunk:
    """Return the bytes of values, for an encoding that is not one of Parquet's."""
    if is_file(type_):
        fields = dict(zip([field.name for field in type_], array.flatten()))
        content, paths = fields["bytes"].cast(pa.binary()), fields.get("path")
        if paths is None or not pc.any(pc.and_(paths.is_valid(), content.is_null())).as_py():
            return _pieces(content, _copied)
        return Files(_pieces(content, _copied), _pieces(paths, _text), directory)
    of = pa.types
    if of.is_string(type_) or of.is_binary(type_) or of.is_fixed_size_binary(type_):
        return _pieces(array, _copied)
    if fixed_of(type_) is not None:
        encoding = Fixed(type_, nullable=False)
        if array.null_count:
            raise DecodeError("values are missing, so that a decoder cannot be used")
        values = np.ascontiguousarray(numbers_of(array, encoding))
        width = encoding.item.itemsize
        starts = np.arange(len(array), dtype=np.int64) * width
        sizes = np.full(len(array), width, np.int64)
        return Pieces(memoryview(values.tobytes()), starts, sizes, None, _copied)
    if of.is_list(type_) and fixed_of(type_.value_type) is not None:
        return _number_lists(array, Fixed(type_.value_type, nullable=False))
    raise DecodeError(f"a decoder cannot be used for {type_}: its values are not bytes")


def _number_lists(array: pa.Array, of: Fixed) -> Pieces:
    """Return the bytes of the numbers of lists; lists that are missing stay so."""
    items = array.flatten()
    if items.null_count:
        raise DecodeError(f"{items.null_count} numbers in lists are missing, which no array says")
    numbers = np.ascontiguousarray(numbers_of(items, of))
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    sizes = lengths.astype(np.int64) * of.item.itemsize
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return Pieces(memoryview(numbers.tobytes()), np.cumsum(sizes) - sizes, sizes, valid, _copied)


def _copied(data: memoryview) -> memoryview:
    return data


class Collected:
    """The values of one column for a batch, filled row group by row group."""

    def __init__(self, column: Column, rows: Int64) -> None:
        self._column, self._rows = column, rows
        encoding = column.encoding
        self._mine = isinstance(encoding, ArrowValue)
        self._numbers = isinstance(encoding, Fixed) and not encoding.nullable
        if self._numbers:
            self._values: Any = np.empty((len(rows), *encoding.shape), encoding.base)  # type: ignore[attr-defined]  # it is Fixed
        else:
            self._values = [None] * len(rows)

    def put(self, places: Int64 | slice, chunk: Chunk, rows: Int64) -> None:
        """Fill in values of a row group."""
        values = chunk.take(rows)
        if self._numbers:
            self._values[places] = values
        elif isinstance(places, slice):
            self._values = values
        else:
            for place, value in zip(places.tolist(), values):
                self._values[place] = value

    def finish(self) -> ColumnValues:
        """Return all values.

        Raises:
            DecodeError: If a value cannot be decoded.
        """
        if self._mine:
            return self._values  # type: ignore[no-any-return]  # a list or an array
        return decoded(self._column, self._values, self._rows)


def decoded(column: Column, values: Sequence[Any], rows: Int64) -> ColumnValues:
    """Decode values with an encoding that is not one of Parquet's; None stays None.

    Raises:
        DecodeError: If a value cannot be decoded; names the sample and the column.
    """
    have = [place for place, value in enumerate(values) if value is not None]
    sizes = np.array([len(values[place]) for place in have], np.int64)
    data = np.frombuffer(b"".join([values[place] for place in have]), np.uint8)
    batch = decode_values(column, rows[have], data, np.cumsum(sizes) - sizes, sizes)
    if len(have) == len(values):
        return batch
    return merge_values(len(values), [(np.array(have, np.int64), column, batch)])


def decoded_one(column: Column, value: Any, row: int) -> Any:
    """Decode one value with an encoding that is not one of Parquet's; None stays None.

    Raises:
        DecodeError: If it cannot be decoded.
    """
    encoding: Encoding = column.encoding
    try:
        return None if value is None else encoding.decode(value)
    except Exception as error:
        raise row_error(column, row, error) from error


def row_error(column: Column, row: int, error: Exception) -> DecodeError:
    """Return the error for a value that cannot be decoded."""
    return undecodable_error(f"sample {row}, column {column.name!r}", error)
