"""Conversion of samples to Arrow tables, one by one or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamplug.errors import ConfigError, EncodeError, EncodeTypeError, StreamplugError
from streamplug.interfaces import Column
from streamplug.plugin_kit import check_names, count_of
from streamplug.types import Int64
from streamplug_parquet.row_code import CopiedRow, row_function
from streamplug_parquet.sizes import sizes_of
from streamplug_parquet.values import ArrowValue

_MIN_ROWS_PER_TABLE = 1000
"""Average rows per table from which tables are not combined."""


class Collector:
    """Collects samples for tables.

    Attributes:
        copy_row: Copies a sample; returns its values in column order and its size in bytes. Raises
            `EncodeError`.
    """

    def __init__(self, columns: Sequence[Column], schema: pa.Schema) -> None:
        """Collect samples of these columns, for files with the schema."""
        self._columns = [(column.name, value_of(column)) for column in columns]
        self._names = {name for name, _ in self._columns}
        self._schema = schema
        self.copy_row = row_function(self._columns, self._with_care)

    def _with_care(self, sample: Mapping[str, Any]) -> CopiedRow:
        """Copy any sample: the fallback of `copy_row`."""
        check_names(sample, self._names)
        row, total = [], 0
        for name, value in self._columns:
            item = sample[name]
            try:
                copy, size = (
                    value.none if item is None and value.nullable else value.copy_value(item)
                )
            except Exception as error:  # whatever an encoding raises
                raise _refused(name, error) from error
            row.append(copy)
            total += size + value.nullable
        return tuple(row), total

    def to_table(self, copies: Sequence[Any]) -> pa.Table:
        """Return a table of copied samples, whose values are concatenated."""
        count = len(self._columns)
        arrays = [value.to_array(copies[n::count]) for n, (_, value) in enumerate(self._columns)]
        return pa.Table.from_arrays(arrays, schema=self._schema)

    def batch(self, columns: Mapping[str, Any]) -> tuple[pa.Table, Int64]:
        """Return a table of samples and the bytes of each: int64, shape ``[n]``.

        Raises:
            EncodeError: As for `copy_row`, or if the columns differ in length.
        """
        count = count_of(columns, self._names)
        sizes = np.zeros(count, np.int64)
        arrays = []
        for name, value in self._columns:
            try:
                array = value.column(columns[name])
                sizes += sizes_of(array) + value.nullable
            except Exception as error:  # whatever an encoding raises
                raise _refused(name, error) from error
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=self._schema), sizes

    def to_tables(self, pieces: Sequence[Any]) -> Sequence[pa.Table]:
        """Return tables of copied samples, or of tables, combining small ones."""
        if not isinstance(pieces[0], pa.Table):
            return [self.to_table(pieces)]
        if sum(map(len, pieces)) >= _MIN_ROWS_PER_TABLE * len(pieces):
            return pieces
        return [pa.concat_tables(pieces).combine_chunks()]


def groups_of(sizes: Int64, rows: int, size: int) -> Iterator[slice]:
    """Yield the samples of each row group: at most `rows`, and `size` bytes unless it is a single sample."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + size, side="right"))
        stop = min(max(stop, first + 1), first + rows)
        yield slice(first, stop)
        first = stop


def value_of(column: Column) -> ArrowValue:
    """Return the encoding of a column.

    Raises:
        ConfigError: If it belongs to another format.
    """
    if not isinstance(column.encoding, ArrowValue):
        raise ConfigError(f"column {column.name!r}: {column.spec!r} is not a type of Arrow")
    return column.encoding


def _refused(name: str, error: Exception) -> StreamplugError:
    if isinstance(error, EncodeError):
        return type(error)(f"column {name!r}: {error}")
    if isinstance(error, ConfigError):
        return ConfigError(f"column {name!r}: {error}")
    return EncodeTypeError(f"column {name!r}: {type(error).__name__}: {error}")
