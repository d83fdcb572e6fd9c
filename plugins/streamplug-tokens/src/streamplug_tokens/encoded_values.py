"""Location of a column's encoded values in mapped memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from streamplug.interfaces import Column, GatherBuffer
from streamplug.read import OpenShard, Reader, ShardGroups, spanned
from streamplug.types import Int64
from streamplug_tokens.token_files import TokenFileReader


class EncodedValues(NamedTuple):
    """Location of the encoded values of one column of some samples."""

    column: Column
    places: Int64  # positions of the values among the requested samples, shape [n]
    data: GatherBuffer  # buffer that contains the values
    starts: Int64  # offset of each value in `data`, shape [n]
    sizes: Int64  # bytes of each value, shape [n]
    shards: Sequence[OpenShard]  # owners of the memory; keep them while `data` is used


def iter_encoded_values(reader: Reader, ids: Int64, name: str) -> Iterator[EncodedValues]:
    """Yield the locations in memory of the values of one column, in parts.

    Samples whose format does not support this are left out. Any exception may be raised if a shard cannot be
    fetched or a sample is damaged; `Reader.batch` names it.
    """
    groups = ShardGroups(np.asarray(reader.starts), ids)
    stop = 0
    while stop < len(groups.shards):
        shards = reader.open_uniform(groups.shards, stop)
        part = slice(stop, stop + len(shards))
        stop = part.stop
        first = shards[0]
        column = next(column for column in first.columns if column.name == name)
        if isinstance(first.reader, TokenFileReader):
            places = groups.places(part)
            ranges = first.reader.token_ranges(groups.rows[places])
            starts, sizes = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
            yield EncodedValues(column, places, GatherBuffer(first.data), starts, sizes, shards)
            continue
        if first.layout is None or first.kind is None:
            continue
        data, shard_starts = spanned([shard.data for shard in shards])
        places, counts = groups.places(part), groups.counts[part]
        shard_sizes = np.array([shard.bytes for shard in shards], np.int64)
        at, sizes = np.repeat(shard_starts, counts), np.repeat(shard_sizes, counts)
        values = first.layout.values(data, at, sizes, groups.rows[places], column)
        if values is not None:
            yield EncodedValues(column, places, data, *values, shards)
