"""Reader of a data file of a table: without deleted rows, with the columns of the table."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streamplug.errors import CorruptShardError
from streamplug.interfaces import Column
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_parquet.chunks import Chunk, Collected, chunk_of, decoded_one
from streamplug_parquet.file_bytes import FileBytes
from streamplug_parquet.memory_bounds import decoded_limit
from streamplug_parquet.reader import ParquetReader
from streamplug_parquet.table_columns import FileFields, TableColumn
from streamplug_parquet.values import ArrowValue


@dataclass(frozen=True)
class TableFile:
    """A Parquet file of a table.

    Attributes:
        key: Path below the location of the table.
        size: Size in bytes.
        rows: Number of rows, with deleted ones.
        deleted: Positions of deleted rows: int64, ascending and distinct.
        constants: Values of columns that the file need not have, such as those of its partition.
    """

    key: str
    size: int
    rows: int
    deleted: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    constants: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of rows that are not deleted."""
        return self.rows - len(self.deleted)


class TableFileReader(ParquetReader):
    """Reads the rows of one file that are not deleted."""

    def __init__(
        self,
        file: FileBytes,
        columns: Sequence[Column],
        table_columns: Sequence[TableColumn],
        deleted: Int64,
        constants: Mapping[str, Any],
    ) -> None:
        """Open a file; `columns` are those of the index, `constants` as in `TableFile`.

        Raises:
            CorruptShardError: If the file is damaged, or its columns do not fit the table.
        """
        self._columns, self._table_columns = columns, table_columns
        self._values = constants
        self._stored: dict[str, Column] = {}
        self._fields: dict[str, tuple[pa.Field, TableColumn]] = {}
        self._constants: dict[str, Chunk] = {}
        # How many rows that are not deleted come before each deleted one.
        self._kept_before_deleted = deleted - np.arange(len(deleted))
        super().__init__(file, columns)

    def check_schema(self, schema: pa.Schema) -> None:
        file, self._types = FileFields(schema), {}
        for column, table_column in zip(self._columns, self._table_columns):
            found = table_column.find_in(file)
            if found is not None:
                stored = found[1]
                table_column.check(stored)
                self._stored[column.name] = replace(column, name=stored.name)
                self._types[stored.name] = table_column.type
                self._fields[stored.name] = stored, table_column
                continue
            value = self._values.get(column.name, table_column.default)
            if value is None and not table_column.nullable:
                raise CorruptShardError(
                    f"it has no column {column.name!r}, whose values the table requires"
                )
            array = pa.array([value], table_column.type)
            self._constants[column.name] = chunk_of(
                column, array, table_column.type, decoded_limit(array.nbytes)
            )
        self._is_plain = (
            not len(self._kept_before_deleted)
            and not self._constants
            and all(name == column.name for name, column in self._stored.items())
        )

    def _as_type(self, name: str, array: pa.Array) -> pa.Array:
        stored, table_column = self._fields[name]
        if not table_column.children:
            return super()._as_type(name, array)
        return table_column.read_as(array, stored)

    def __len__(self) -> int:
        return super().__len__() - len(self._kept_before_deleted)

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        return self.row_reader(columns)(index)

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        if self._is_plain:
            return partial(super().row, columns=columns)
        read = super().row
        stored = self._stored_of(columns)
        kept_before = memoryview(self._kept_before_deleted)  # type: ignore[arg-type]  # an array is a buffer

        def read_row(index: int) -> Sample:
            index += bisect_right(kept_before, index)
            values = read(index, stored) if stored else {}
            return {column.name: self._value(column, values, index) for column in columns}

        return read_row

    def _value(self, column: Column, values: Sample, index: int) -> Any:
        if column.name in self._stored:
            return values[self._stored[column.name].name]
        value = self._constants[column.name].one(0)
        is_decoded = isinstance(column.encoding, ArrowValue)
        return value if is_decoded else decoded_one(column, value, index)

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        if self._is_plain:
            return super().take(rows, columns)
        rows, stored = self._with_deleted(rows), self._stored_of(columns)
        values = iter(super().take(rows, stored) if stored else ())
        return [
            next(values) if column.name in self._stored else self._repeat(column, rows)
            for column in columns
        ]

    def groups_of(self, rows: Int64) -> Sequence[int]:
        return super().groups_of(self._with_deleted(rows))

    def byte_ranges(self, group: int, columns: Sequence[Column]) -> Int64:
        return super().byte_ranges(group, self._stored_of(columns))

    def has_decoded(self, group: int, columns: Sequence[Column]) -> bool:
        return super().has_decoded(group, self._stored_of(columns))

    def _with_deleted(self, rows: Int64) -> Int64:
        """Return the positions of rows in the file, which also has deleted ones."""
        return rows + np.searchsorted(self._kept_before_deleted, rows, side="right")

    def _stored_of(self, columns: Sequence[Column]) -> list[Column]:
        """Return those columns that the file has, by their names in it."""
        return [self._stored[column.name] for column in columns if column.name in self._stored]

    def _repeat(self, column: Column, rows: Int64) -> ColumnValues:
        collected = Collected(column, rows)
        collected.put(slice(None), self._constants[column.name], np.zeros(len(rows), np.int64))
        return collected.finish()
