"""Location of a column's encoded values in mapped memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamplug.interfaces import Column, GatherBuffer
from streamplug.read.assemble import ShardGroups
from streamplug.read.memory_map import spanned
from streamplug.read.open_shards import OpenShard
from streamplug.types import Int64


class EncodedValues(NamedTuple):
    """Location of the encoded values of one column of some samples."""

    column: Column
    places: Int64  # positions of the values among the requested samples, shape [n]
    data: GatherBuffer  # buffer that contains the values
    starts: Int64  # offset of each value in `data`, shape [n]
    sizes: Int64  # bytes of each value, shape [n]
    shards: Sequence[OpenShard]  # owners of the memory; keep them while `data` is used

    @classmethod
    def of(
        cls, shards: Sequence[OpenShard], groups: ShardGroups, part: slice, name: str
    ) -> EncodedValues | None:
        """Locate the values in uniform shards; return None if their format does not support it."""
        first = shards[0]
        if first.layout is None or first.kind is None:
            return None
        column = next(column for column in first.columns if column.name == name)
        data, starts = spanned([shard.data for shard in shards])
        places, counts = groups.places(part), groups.counts[part]
        of_files = np.array([shard.bytes for shard in shards], np.int64)
        at, sizes = np.repeat(starts, counts), np.repeat(of_files, counts)
        found = first.layout.values(data, at, sizes, groups.rows[places], column)
        return None if found is None else cls(column, places, data, *found, shards)
