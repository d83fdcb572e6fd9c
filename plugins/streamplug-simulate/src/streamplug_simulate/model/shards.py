"""Shards: what the index says of the sizes of all shards, and in which cache each is kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from streamplug.index import Index
from streamplug.transfer.ranges import AT_ONCE, LARGE, PART
from streamplug.types import Int64


class Size(NamedTuple):
    """What one shard takes.

    Attributes:
        stored: Bytes that are fetched.
        kept: Bytes that stay in the cache.
        room: Bytes that must be free in the cache to fetch it.
        requests: How many requests, one after the other, it takes to fetch it.
        cache: Number of the cache that it goes to.
    """

    stored: int
    kept: int
    room: int
    requests: int
    cache: int


class Shards:
    """The shards of all streams.

    Attributes:
        raw: Bytes of each, not compressed, shape ``[shards]``.
        stored: Bytes of each, as it is fetched, shape ``[shards]``.
        caches: How many caches a node has.
        largest: Bytes of room that the largest takes.
    """

    def __init__(
        self, indexes: Sequence[Index], caches: Sequence[int], keeps: Sequence[bool]
    ) -> None:
        """Look at the indexes.

        Args:
            indexes: Those of the streams.
            caches: Number of the cache that each stream is kept in.
            keeps: Whether compressed files of a stream stay.
        """
        tables = [_sizes(index, keep_zip=keep) for index, keep in zip(indexes, keeps)]
        self.raw, self.stored, self._kept, self._room, self._requests = (
            np.concatenate(columns) for columns in zip(*tables)
        )
        self._cache = np.repeat(np.array(caches), [len(index) for index in indexes])
        self.caches = max(caches, default=0) + 1
        self.largest = int(self._room.max(initial=0))
        self.sizes = cache(self._sizes)

    def __len__(self) -> int:
        return len(self.raw)

    def _sizes(self, shard: int) -> Size:
        columns = self.stored, self._kept, self._room, self._requests, self._cache
        return Size(*(int(column[shard]) for column in columns))

    def cache_of(self, shard: int) -> int:
        """Return the number of the cache that a shard goes to."""
        return self.sizes(shard).cache


def _sizes(index: Index, *, keep_zip: bool) -> list[Int64]:
    """Return what the shards of an index take: raw, stored, kept, room, requests."""
    raw, stored, packed, requests = np.zeros((4, len(index)), np.int64)
    for name, files in index.tables.items():
        if not name.startswith("raw_"):
            continue
        size = files.bytes.astype(np.int64)
        zipped = index.tables.get(f"zip_{name[4:]}")
        comes = (
            size if zipped is None else np.where(zipped.bytes, zipped.bytes, size).astype(np.int64)
        )
        raw += size
        stored += comes
        packed += 0 if zipped is None else zipped.bytes.astype(np.int64)
        large = -(-comes // (PART * AT_ONCE))
        requests += np.where(comes >= LARGE, large, size > 0)
    return [raw, stored, raw + packed * keep_zip, raw + packed, requests]
