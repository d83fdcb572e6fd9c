"""Shards of which each is read as a whole or by ranges, whichever transfers fewer bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from streamplug.cache import ShardStore
from streamplug.errors import DataError
from streamplug.index import Index
from streamplug.interfaces import RangeReadableFormat, ShardInfo
from streamplug.read import Need, OpenShard, OpenShards, PartialNeed, StreamShards
from streamplug.types import Int64
from streamplug_ranges.range_fetcher import RangeFetcher
from streamplug_ranges.range_shards import RangeShards

_MIN_SAVED_SHARE = 0.2
"""Whole shards are kept in the cache, so that a later epoch transfers nothing."""


class AutoShards(StreamShards):
    """Reader of the shards of one stream, some of them by range requests."""

    is_whole: ClassVar[bool] = False

    def __init__(
        self, shards: OpenShards, ranges: RangeShards, store: ShardStore, index: Index, rows: Int64
    ) -> None:
        """Choose for each shard; `rows` has the number of samples to read of each, shape ``[shards]``.

        Shards that are in the cache already are read there.
        """
        self._whole, self._ranges, self.limit = shards, ranges, shards.limit
        self._by_range = _range_bytes(index, rows) < (1 - _MIN_SAVED_SHARE) * index.raw_shard_bytes
        for shard in np.flatnonzero(self._by_range & (rows > 0)).tolist():
            self._by_range[shard] = not store.is_cached(shard)

    def _of(self, shard: int) -> OpenShards | RangeShards:
        return self._ranges if self._by_range[shard] else self._whole

    def get(self, shard: int) -> OpenShard:
        return self._of(shard).get(shard)

    def if_open(self, shard: int) -> OpenShard | None:
        return self._of(shard).if_open(shard)

    def info(self, shard: int) -> ShardInfo:
        return self._of(shard).info(shard)

    def keep(self, shard: int, times: int) -> None:
        self._of(shard).keep(shard, times)

    def repair(self, shard: int, damaged: OpenShard, error: DataError) -> OpenShard | None:
        return self._of(shard).repair(shard, damaged, error)

    def remember_failures(self) -> None:
        self._whole.remember_failures()
        self._ranges.remember_failures()

    def needs(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[Need]:
        whole = [found for found in rows if not self._by_range[found[0]]]
        by_range = self._ranges.needs(first, self._ranged(rows))
        return [*self._whole.needs(first, whole), *by_range]

    def missing(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[PartialNeed]:
        return self._ranges.missing(first, self._ranged(rows))

    def start_fetching(self, needs: Sequence[PartialNeed]) -> RangeFetcher:
        return self._ranges.start_fetching(needs)

    def _ranged(self, rows: Sequence[tuple[int, Int64]]) -> list[tuple[int, Int64]]:
        return [found for found in rows if self._by_range[found[0]]]


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
