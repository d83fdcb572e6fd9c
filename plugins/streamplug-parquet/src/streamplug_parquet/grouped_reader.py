"""Reading of the rows of a file whose columns are decoded group by group of rows."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise
from weakref import finalize

import numpy as np
import pyarrow as pa
from streamplug_ranges import RowGroupReader

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column
from streamplug.plugin_kit import undecodable_error
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_parquet.arrow_conversion import MAX_OFFSET
from streamplug_parquet.budget import budget
from streamplug_parquet.chunks import Chunk, Collected, chunk_of, decoded_one, row_error
from streamplug_parquet.memory_bounds import describe
from streamplug_parquet.types import plain, spec_of, type_of
from streamplug_parquet.values import ArrowValue

_WIDE_TYPES = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types of arrays for text and bytes of 2 GiB or more, as a row group may have."""
_numbers = count()


class GroupedReader(RowGroupReader):
    """Reads the rows of one file.

    Decoded column chunks are cached for later rows of the row group, within the limit of the process.
    """

    def __init__(self, rows: Sequence[int], columns: Sequence[Column]) -> None:
        """Read columns of groups with these numbers of rows."""
        self.num_groups = len(rows)
        self._starts = np.cumsum([0, *rows])
        self._bounds: list[int] = self._starts.tolist()
        self._types = {column.name: type_of(column.spec.removesuffix("?")) for column in columns}
        self._number = next(_numbers)
        finalize(self, budget.forget, self._number).atexit = False

    def check_schema(self, schema: pa.Schema) -> None:
        """Check the columns of the file.

        Raises:
            CorruptShardError: If they differ from the index.
        """
        fields = {field.name: field.type for field in schema}
        for name, type_ in self._types.items():
            if name not in fields:
                raise CorruptShardError(f"it has no column {name!r}, but {sorted(fields)!r:.200}")
            field_type = plain(fields[name])
            if not pa.types.is_null(field_type) and spec_of(field_type) != spec_of(plain(type_)):
                raise CorruptShardError(
                    f"column {name!r} is {spec_of(field_type)}, the index says {spec_of(type_)}"
                )

    def __len__(self) -> int:
        return self._bounds[-1]

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        group = bisect_right(self._bounds, index) - 1
        row = index - self._bounds[group]
        chunks = self._chunks(group, columns)
        sample: Sample = {}
        for column in columns:
            try:
                value = chunks[column.name].one(row)
            except Exception as error:
                raise row_error(column, index, error) from error
            if not isinstance(column.encoding, ArrowValue):
                value = decoded_one(column, value, index)
            sample[column.name] = value
        return sample

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        collected = [Collected(column, rows) for column in columns]
        for group, places in self._by_group(rows):
            inside = rows[places] - self._starts[group]
            chunks = self._chunks(group, columns)
            for column, values in zip(columns, collected):
                chunk = chunks[column.name]
                try:
                    values.put(places, chunk, inside)
                except Exception as error:
                    raise self._blame(column, chunk, inside, rows[places], error) from error
        return [values.finish() for values in collected]

    def _by_group(self, rows: Int64) -> Iterator[tuple[int, Int64 | slice]]:
        """Yield each row group with the positions in `rows` of its rows."""
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        if not len(rows):
            return
        if (groups == groups[0]).all():
            yield int(groups[0]), slice(None)
            return
        order = np.argsort(groups, kind="stable")
        ordered = groups[order]
        cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(cuts):
            yield int(ordered[start]), order[start:stop]

    def _blame(
        self, column: Column, chunk: Chunk, inside: Int64, rows: Int64, error: Exception
    ) -> DecodeError:
        """Return an error that names the sample whose value cannot be decoded."""
        for row, index in zip(inside.tolist(), rows.tolist()):
            try:
                chunk.one(row)
            except Exception as single:  # noqa: BLE001 - whatever it is, this is the one
                return row_error(column, index, single)
        return undecodable_error(f"column {column.name!r}", error)

    @abstractmethod
    def decode(self, group: int, columns: Sequence[Column]) -> dict[str, Chunk]:
        """Decode columns of a row group; errors name the row group and the column."""

    def groups_of(self, rows: Int64) -> Sequence[int]:
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        return np.unique(groups).tolist()  # type: ignore[no-any-return]  # NumPy does not say it

    def has_decoded(self, group: int, columns: Sequence[Column]) -> bool:
        keys = ((self._number, group, column.name) for column in columns)
        return all(budget.get(key) is not None for key in keys)

    def _chunks(self, group: int, columns: Sequence[Column]) -> Mapping[str, Chunk]:
        """Return columns of a row group; decode those that are not cached."""
        chunks_by_name: dict[str, Chunk] = {}
        missing = []
        for column in columns:
            chunk = budget.get((self._number, group, column.name))
            if chunk is None:
                missing.append(column)
            else:
                chunks_by_name[column.name] = chunk
        if missing:
            made = self.decode(group, missing)
            budget.put(self._number, group, made)
            chunks_by_name.update(made)
        return chunks_by_name

    def chunk(self, group: int, column: Column, values: pa.ChunkedArray, limit: int) -> Chunk:
        """Return a column of a row group, which may take `limit` bytes as Python objects."""
        where = describe(group, [column.name])
        rows = self._bounds[group + 1] - self._bounds[group]
        try:
            array = self._as_type(column.name, _whole(values))
            if len(array) != rows:
                raise CorruptShardError(f"it has {len(array)} values for {rows} rows")
            return chunk_of(column, array, plain(self._types[column.name]), limit)
        except DecodeError as error:
            raise DecodeError(f"{where}: {error}") from error
        except MemoryError:
            raise
        except Exception as error:
            raise CorruptShardError(f"{where}: {error}") from error

    def _as_type(self, name: str, array: pa.Array) -> pa.Array:
        """Return values of a column as those of its type; text may stay a dictionary."""
        type_ = plain(self._types[name])
        if pa.types.is_dictionary(array.type):
            return _as_stored(array, type_)
        return array if array.type in (type_, _WIDE_TYPES.get(type_)) else array.cast(type_)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without extension types."""
    if column.num_chunks > 1 and column.nbytes > MAX_OFFSET and column.type in _WIDE_TYPES:
        column = column.cast(_WIDE_TYPES[column.type])
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _as_stored(array: pa.DictionaryArray, type_: pa.DataType) -> pa.Array:
    """Return text and bytes as the dictionary array, other types decoded."""
    array = _with_plain_text(array)
    is_text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    if is_text and not array.dictionary.null_count:
        return array
    return array.dictionary_decode().cast(type_)


def _with_plain_text(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return text or bytes whose dictionary has no views, which have other buffers."""
    dictionary = array.dictionary
    if str(dictionary.type) not in ("string_view", "binary_view"):
        return array
    return pa.DictionaryArray.from_arrays(array.indices, dictionary.cast(plain(dictionary.type)))
