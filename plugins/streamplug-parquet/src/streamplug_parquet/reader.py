"""Reader of Parquet files, by row group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column
from streamplug.types import Int64
from streamplug_parquet.chunks import Chunk
from streamplug_parquet.column_chunks import ColumnChunks
from streamplug_parquet.file_bytes import FileBytes, FileContent
from streamplug_parquet.footer import parsed, schema_of
from streamplug_parquet.grouped_reader import GroupedReader
from streamplug_parquet.memory_bounds import DecodedSizes, describe, expanded_size

_MICROSECONDS = "timestamp[us"
_WIDE_TYPES = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
"""Types of arrays for text and bytes of 2 GiB or more, as a row group may have."""


class ParquetReader(GroupedReader):
    """Reads the rows of one file."""

    def __init__(self, file: FileBytes, columns: Sequence[Column]) -> None:
        """Open a file.

        Raises:
            CorruptShardError: If the file is damaged or its columns differ from the index.
        """
        self._file, self.header_bytes = file, len(file.end)
        self._metadata = parsed(file.end)
        self.num_groups = self._metadata.num_row_groups
        rows = [self._metadata.row_group(n).num_rows for n in range(self._metadata.num_row_groups)]
        super().__init__(rows, columns)
        self.check_schema(schema_of(self._metadata))

    # -- row groups -------------------------------------------------------------------

    def byte_ranges(self, group: int, columns: Sequence[Column]) -> Int64:
        if self._file.is_whole:
            return np.empty((0, 2), np.int64)
        return self._locate(group, [column.name for column in columns])

    def _locate(self, group: int, names: Sequence[str]) -> Int64:
        """Return the byte ranges of columns of a row group, by their names in the file."""
        return self._column_chunks.byte_ranges(group, names, self._file.footer_start)

    def decode(self, group: int, columns: Sequence[Column]) -> dict[str, Chunk]:
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
        return {
            column.name: self.chunk(group, column, table.column(column.name), plan.limit)
            for column in columns
        }

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
