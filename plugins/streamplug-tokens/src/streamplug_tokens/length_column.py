"""Lengths of documents that are stored in a column of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from streamplug_ranges import RangeReader, RowGroupFormat, RowGroupShards

from streamplug.config import is_integer
from streamplug.errors import ConfigError, DataError
from streamplug.read import Reader, StreamShards
from streamplug.source import OpenStream
from streamplug.types import Int64

_ROWS_PER_READ = 1 << 16


def read_length_column(stream: OpenStream, name: str) -> Int64:
    """Return the lengths of all documents of a stream, also of those that are not selected.

    Raises:
        ConfigError: If there is no such column, or it has no whole numbers.
        StreamplugError: If it cannot be read, or a length is missing or negative.
    """
    for schema in stream.index.schemas:
        if schema.column(name) is None:
            known = ", ".join(repr(column.name) for column in schema.columns)
            raise ConfigError(f"lengths={name!r}: {stream.where} has only the columns {known}")
    lengths = np.empty(stream.index.size, np.int64)
    reader = Reader([stream.index.starts], [_shards(stream, name)])
    for start in range(0, len(lengths), _ROWS_PER_READ):
        rows = np.arange(start, min(start + _ROWS_PER_READ, len(lengths)))
        values = np.asarray(reader.batch(rows)[name])
        if values.dtype.kind not in "iu" or values.ndim != 1:
            other = next((v for v in values.tolist() if not is_integer(v)), None)
            raise ConfigError(
                f"{stream.where}: column {name!r} of lengths= has other values than whole numbers, such as "
                f"{other!r:.60}"
            )
        lengths[rows] = values
        if (lengths[rows] < 0).any():
            row = start + int((lengths[rows] < 0).argmax())
            raise DataError(
                f"{stream.where}: {reader.describe(row)}: column {name!r} of lengths= is {lengths[row]}"
            )
    return lengths


def _shards(stream: OpenStream, name: str) -> StreamShards:
    """Return shards of which only this column is read, if their format can do that."""
    index = stream.index
    by_column = all(
        isinstance(schema.format, RowGroupFormat) and not schema.compression
        for schema in index.schemas
    )
    if by_column:
        return RowGroupShards(index, RangeReader.of(stream.shard_files), [name])
    return replace(stream, selection=None).shards([name])
