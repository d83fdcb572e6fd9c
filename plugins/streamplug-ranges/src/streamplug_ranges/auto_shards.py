"""Shards of which each is read as a whole or by ranges, whichever transfers fewer bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamplug.cache import ShardStore
from streamplug.errors import DataError
from streamplug.index import Index
from streamplug.interfaces import RangeReadableFormat, ShardInfo
from streamplug.read import Need, OpenShard, OpenShards, PartialNeed, StreamShards
from streamplug.types import Int64
from streamplug_ranges.range_fetcher import RangeFetcher
from streamplug_ranges.range_shards import RangeShards
from streamplug_ranges.row_group_shards import RowGroupShards

MAX_SAMPLE_SHARE = 0.8
"""Share of the bytes of a shard up to which its samples are read by ranges, where they are contiguous."""

MAX_COLUMN_SHARE = 0.25
"""The same for row groups. Each process fetches them, in each epoch, but whole shards are in the cache."""


class AutoShards(StreamShards):
    """Reader of the shards of one stream, some of them by range requests."""

    is_whole: ClassVar[bool] = False

    def __init__(
        self,
        shards: OpenShards,
        ranges: RangeShards | RowGroupShards,
        store: ShardStore,
        rows: Int64,
        *,
        is_less: NDArray[np.bool_],
    ) -> None:
        """Choose for each shard.

        Args:
            shards: Reads whole shards.
            ranges: Reads by range requests.
            store: Cache of whole shards: those that are in it already are read there.
            rows: Number of samples to read of each shard, shape ``[shards]``.
            is_less: Which shards ranges transfer clearly fewer bytes of, shape ``[shards]``.
        """
        self._whole, self._ranges, self.limit = shards, ranges, shards.limit
        self._by_range = is_less
        for shard in np.flatnonzero(self._by_range & (rows > 0)).tolist():
            self._by_range[shard] = not store.is_cached(shard)

    def _of(self, shard: int) -> OpenShards | RangeShards | RowGroupShards:
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


def samples_are_less(index: Index, rows: Int64) -> NDArray[np.bool_]:
    """Return of which shards some samples take clearly fewer bytes than the whole.

    Args:
        index: The index of formats with contiguous samples.
        rows: Number of samples to read of each shard, shape ``[shards]``.
    """
    size, samples = index.raw_shard_bytes, np.maximum(index.samples, 1)
    header = np.zeros(len(index), np.int64)
    for number, schema in enumerate(index.schemas):
        places = np.flatnonzero(index.schema_of == number)
        if len(places) and isinstance(schema.format, RangeReadableFormat):
            first = int(places[0])  # headers grow with the number of samples
            start, stop = schema.format.header_range(index.shard(first)) or (0, 0)
            header[places] = (stop - start) * index.samples[places] // samples[first]
    by_range = np.where(rows > 0, header + (size - header) * rows // samples, 0)
    is_less: NDArray[np.bool_] = by_range < MAX_SAMPLE_SHARE * size
    return is_less


def row_groups_are_less(index: Index, ranges: RowGroupShards, rows: Int64) -> NDArray[np.bool_]:
    """Return of which shards the row groups of some samples take clearly fewer bytes than the whole.

    The header of the first shard to read tells which share of the bytes the columns have, and how many row
    groups there are; arguments as of `samples_are_less`.

    Raises:
        StreamplugError: If that header cannot be read.
    """
    size, samples = index.raw_shard_bytes, np.maximum(index.samples, 1)
    first = int((rows > 0).argmax())
    of_columns, num_groups = ranges.measure(first)
    groups = np.maximum(samples * num_groups // samples[first], 1)
    share = of_columns / max(int(size[first]), 1) * np.minimum(rows / groups, 1)
    is_less: NDArray[np.bool_] = share <= MAX_COLUMN_SHARE
    return is_less
