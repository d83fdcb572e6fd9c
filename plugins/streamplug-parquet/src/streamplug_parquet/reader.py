"""Reader of Parquet files, by row group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count, pairwise
from weakref import finalize

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from streamplug_ranges import RowGroupReader

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column
from streamplug.plugin_kit import undecodable_error
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_parquet.arrow_conversion import MAX_OFFSET
from streamplug_parquet.budget import budget
from streamplug_parquet.chunks import Chunk, Collected, chunk_of, decoded_one, row_error
from streamplug_parquet.column_chunks import ColumnChunks
from streamplug_parquet.file_bytes import FileBytes, FileContent
from streamplug_parquet.footer import parsed, schema_of
from streamplug_parquet.memory_bounds import DecodedSizes, describe, expanded_size
from streamplug_parquet.types import plain, spec_of, type_of
from streamplug_parquet.values import ArrowValue

_MICROSECONDS = "timestamp[us"
_WIDE_TYPES = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types of arrays for text and bytes of 2 GiB or more, as a row group may have."""
_numbers = count()


class ParquetReader(RowGroupReader):
    """Reads the rows of one file.

    Decoded column chunks are cached for later rows of the row group, within the limit of the process.
    """

    def __init__(self, file: FileBytes, columns: Sequence[Column]) -> None:
        """Open a file.

        Raises:
            CorruptShardError: If the file is damaged or its columns differ from the index.
        """
        self._file, self.header_bytes = file, len(file.end)
        self._metadata = parsed(file.end)
        self.num_groups = self._metadata.num_row_groups
        rows = [self._metadata.row_group(n).num_rows for n in range(self._metadata.num_row_groups)]
        self._starts = np.cumsum([0, *rows])
        self._bounds: list[int] = self._starts.tolist()
        self._types = {column.name: type_of(column.spec.removesuffix("?")) for column in columns}
        self._check_schema()
        self._number = next(_numbers)
        finalize(self, budget.forget, self._number).atexit = False

    def _check_schema(self) -> None:
        fields = {field.name: field.type for field in schema_of(self._metadata)}
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

    # -- row groups -------------------------------------------------------------------

    def groups_of(self, rows: Int64) -> Sequence[int]:
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        return np.unique(groups).tolist()  # type: ignore[no-any-return]  # NumPy does not say it

    def byte_ranges(self, group: int, columns: Sequence[Column]) -> Int64:
        if self._file.is_whole:
            return np.empty((0, 2), np.int64)
        return self._locate(group, [column.name for column in columns])

    def has_decoded(self, group: int, columns: Sequence[Column]) -> bool:
        keys = ((self._number, group, column.name) for column in columns)
        return all(budget.get(key) is not None for key in keys)

    def _locate(self, group: int, names: Sequence[str]) -> Int64:
        """Return the byte ranges of columns of a row group, by their names in the file."""
        return self._column_chunks.byte_ranges(group, names, self._file.footer_start)

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
            made = self._decoded(group, missing)
            budget.put(self._number, group, made)
            chunks_by_name.update(made)
        return chunks_by_name

    def _decoded(self, group: int, columns: Sequence[Column]) -> dict[str, Chunk]:
        """Decode columns of a row group; errors name the row group and the column."""
        names = [column.name for column in columns]
        content = self._file.load(lambda: self._locate(group, names))
        return self._decoded_of(content, group, columns)

    def _decoded_of(
        self, content: FileContent, group: int, columns: Sequence[Column]
    ) -> dict[str, Chunk]:
        names = [column.name for column in columns]
        plan = DecodedSizes(content.view, self._column_chunks).plan(group, names)
        try:
            table = self._read(content, group, names, plan.dictionaries)
        except MemoryError:  # no damage, as `plan` has checked the sizes
            raise
        except Exception as error:  # Arrow does not document its errors for damaged files
            if len(columns) == 1:
                raise CorruptShardError(
                    f"{describe(group, names)}: it is damaged: {error}"
                ) from error
            one_by_one = (self._decoded_of(content, group, [column]) for column in columns)
            return {name: chunk for made in one_by_one for name, chunk in made.items()}
        self._check_int96(content, group, names, plan.dictionaries, table)
        if plan.dictionaries:
            nested = (table.column(name) for name in names if not self._stays_dictionary(name))
            plan.check_expansion(sum(map(expanded_size, nested)), describe(group, names))
        return {column.name: self._chunk(group, column, table, plan.limit) for column in columns}

    def _read(
        self,
        content: FileContent,
        group: int,
        names: Sequence[str],
        dictionaries: Sequence[str],
        unit: str | None = None,
    ) -> pa.Table:
        """Read columns of a row group; `unit` is that of INT96 timestamps."""
        if any(name in self._int96 and _MICROSECONDS in str(self._types[name]) for name in names):
            unit = "us"
        # One per call, as other threads may be reading.
        file = pq.ParquetFile(
            content.open(),
            metadata=self._metadata,
            pre_buffer=False,
            page_checksum_verification=True,
            read_dictionary=dictionaries,
            coerce_int96_timestamp_unit=unit,
        )
        return file.read_row_group(group, columns=list(names), use_threads=False)

    @cached_property
    def _int96(self) -> frozenset[str]:
        """Columns with timestamps in INT96, also nested ones."""
        schema = self._metadata.schema
        if all(schema.column(n).physical_type != "INT96" for n in range(len(schema))):
            return frozenset()
        fine, coarse = (
            pq.ParquetFile(
                pa.BufferReader(self._file.end),
                metadata=self._metadata,
                coerce_int96_timestamp_unit=unit,
            ).schema_arrow
            for unit in ("ns", "us")
        )
        return frozenset(field.name for field, other in zip(fine, coarse) if field != other)

    def _check_int96(
        self,
        content: FileContent,
        group: int,
        names: Sequence[str],
        dictionaries: Sequence[str],
        table: pa.Table,
    ) -> None:
        """Raise `DecodeError` for times that overflowed when they were read as nanoseconds."""
        for name in self._int96.intersection(names):
            if _MICROSECONDS in str(table.schema.field(name).type):
                continue
            coarse = self._read(content, group, [name], dictionaries, "us").column(name)
            try:
                coarse.cast(table.column(name).type)
            except pa.ArrowInvalid:
                raise DecodeError(
                    f"{describe(group, [name])}: its INT96 timestamps are outside of the years 1678 to "
                    "2261, and cannot be read as nanoseconds; write the file again with timestamps in "
                    "microseconds"
                ) from None

    @cached_property
    def _column_chunks(self) -> ColumnChunks:
        return ColumnChunks(self._file.end, self._metadata)

    def _stays_dictionary(self, name: str) -> bool:
        """Return whether repeated values of a column are not expanded before they are requested."""
        return bool(pa.types.is_string(self._types[name]) or pa.types.is_binary(self._types[name]))

    def _chunk(self, group: int, column: Column, table: pa.Table, limit: int) -> Chunk:
        where = describe(group, [column.name])
        rows = self._bounds[group + 1] - self._bounds[group]
        try:
            array = self._as_type(column.name, _whole(table.column(column.name)))
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
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return array
    return array.dictionary_decode().cast(type_)
