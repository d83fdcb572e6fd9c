"""Sizes of the values of a column, from the headers of the shards."""

from __future__ import annotations

import numpy as np

from streamplug.errors import DataError, prefix_errors
from streamplug.interfaces import RangeReadableFormat
from streamplug.source import OpenStream
from streamplug.types import Int64
from streamplug_ranges.range_reader import RangeReader


def read_header_sizes(stream: OpenStream, shard: int, column: str) -> Int64 | None:
    """Return the stored bytes of each value of a column of a shard, without reading the values.

    Args:
        stream: A stream with shards of its own, whatever its access.
        shard: Number of the shard in the stream.
        column: Name of the column.

    Returns:
        Bytes of each value, shape ``[n]``; None if the header does not have them, or is compressed.

    Raises:
        StreamplugError: If the header cannot be fetched, or is damaged.
    """
    schema, info = stream.index.schema(shard), stream.index.shard(shard)
    format_, stored = schema.format, schema.column(column)
    if stored is None or not isinstance(format_, RangeReadableFormat) or schema.compression:
        return None
    span = format_.header_range(info)
    if span is None:
        return None
    file = info.files[format_.header_role].raw
    [header] = RangeReader.of(stream.shard_files).read(file, np.array([span], np.int64))
    with prefix_errors(f"{stream.where}: shard {shard}", DataError):
        return format_.open_header(info, header, schema.columns).sizes(stored)
