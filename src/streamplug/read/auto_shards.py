"""Shards of which each is read as a whole or by ranges, whichever transfers fewer bytes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from streamplug.cache.store import ShardStore
from streamplug.index import Index
from streamplug.interfaces import RangeReadableFormat
from streamplug.read.open_shards import OpenShards
from streamplug.read.range_shards import RangeShards
from streamplug.types import Int64

_MIN_SAVED_SHARE = 0.2
"""Whole shards are kept in the cache, so that a later epoch transfers nothing."""


class AutoShards:
    """Reader of the shards of one stream, some of them by range requests."""

    def __init__(
        self, shards: OpenShards, ranges: RangeShards, store: ShardStore, index: Index, rows: Int64
    ) -> None:
        """Choose for each shard; `rows` has the number of samples to read of each, shape ``[shards]``.

        Shards that are in the cache already are read there.
        """
        self._whole, self._ranges, self.limit = shards, ranges, shards.limit
        self.parts = (shards, ranges)
        self._by_range = _range_bytes(index, rows) < (1 - _MIN_SAVED_SHARE) * index.raw_shard_bytes
        for shard in np.flatnonzero(self._by_range & (rows > 0)).tolist():
            self._by_range[shard] = not store.is_cached(shard)

    def at(self, shard: int) -> OpenShards | RangeShards:
        """Return the reader of a shard."""
        return self._ranges if self._by_range[shard] else self._whole


StreamShards: TypeAlias = "OpenShards | RangeShards | AutoShards"


def _range_bytes(index: Index, rows: Int64) -> Int64:
    """Estimate the bytes that range requests of some samples of each shard transfer, with the headers."""
    size, samples = index.raw_shard_bytes, np.maximum(index.samples, 1)
    header = np.zeros(len(index), np.int64)
    for number, schema in enumerate(index.schemas):
        places = np.flatnonzero(index.schema_of == number)
        if len(places) and isinstance(schema.format, RangeReadableFormat):
            first = int(places[0])  # headers grow with the number of samples
            start, stop = schema.format.header_range(index.shard(first)) or (0, 0)
            header[places] = (stop - start) * index.samples[places] // samples[first]
    return np.where(rows > 0, header + (size - header) * rows // samples, 0)
