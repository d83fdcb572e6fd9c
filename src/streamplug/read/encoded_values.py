"""Where the encoded values of a column lie in the memory that shards are mapped to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamplug.interfaces import Column, GatherBuffer
from streamplug.read.assemble import ShardGroups
from streamplug.read.memory import spanned
from streamplug.read.open_shards import OpenShard
from streamplug.types import Int64


class EncodedValues(NamedTuple):
    """Where the encoded values of one column of some samples lie.

    Attributes:
        column: The column.
        places: Which of the samples asked for they are of, shape ``[n]``.
        data: Holds the values.
        starts: Where in it each begins, shape ``[n]``.
        sizes: Bytes of each, shape ``[n]``.
        shards: Those that own the buffer: to be kept for as long as it is read.
    """

    column: Column
    places: Int64
    data: GatherBuffer
    starts: Int64
    sizes: Int64
    shards: Sequence[OpenShard]

    @classmethod
    def of(
        cls, shards: Sequence[OpenShard], groups: ShardGroups, part: slice, name: str
    ) -> EncodedValues | None:
        """Look at what is asked for of shards that can be read together; None if they cannot tell."""
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
