"""Sizes and caches of all shards, from the index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from streamplug_tools.inspection import without_scan_files

from streamplug.index import Index
from streamplug.transfer import PARALLEL_DOWNLOAD_BYTES, PART_BYTES, PARTS_IN_FLIGHT
from streamplug.types import Int64


class ShardSize(NamedTuple):
    """Size of one shard.

    Attributes:
        stored: Bytes downloaded.
        kept: Bytes that stay in the cache.
        room: Bytes reserved in the cache for the download.
        requests: Number of sequential requests.
        cache: Number of its cache.
    """

    stored: int
    kept: int
    room: int
    requests: int
    cache: int


class ShardSizes:
    """Sizes of the shards of all streams.

    Attributes:
        raw: Uncompressed bytes, shape ``[shards]``.
        stored: Bytes downloaded, shape ``[shards]``.
        files: For each shard the first one with the same files in a cache, shape ``[shards]``: streams of one
            data set share these.
        caches: Number of caches per node.
        largest: Bytes reserved for the largest shard.
    """

    def __init__(
        self,
        indexes: Sequence[Index],
        caches: Sequence[int],
        directories: Sequence[str],
        keeps: Sequence[bool],
    ) -> None:
        """Read sizes from indexes.

        Args:
            indexes: Index of each stream.
            caches: Number of the cache of each stream.
            directories: Directory of the shards of each stream.
            keeps: Whether each stream keeps compressed files.
        """
        tables = [_sizes(index, keep_zip=keep) for index, keep in zip(indexes, keeps)]
        self.raw, self.stored, self._kept, self._room, self._requests = (
            np.concatenate(columns) for columns in zip(*tables)
        )
        self._cache = np.repeat(np.array(caches), [len(index) for index in indexes])
        self.files = _first_shards(indexes, directories)
        self._distinct = sorted(set(self.files))
        self.caches = max(caches, default=0) + 1
        self.largest = int(self._room.max(initial=0))
        self.sizes = cache(self._sizes)

    def __len__(self) -> int:
        """Return the number of shards, without those that streams share."""
        return len(self._distinct)

    @property
    def raw_bytes(self) -> int:
        """Uncompressed bytes of all shards."""
        return int(self.raw[self._distinct].sum())

    @property
    def stored_bytes(self) -> int:
        """Stored bytes of all shards."""
        return int(self.stored[self._distinct].sum())

    def _sizes(self, shard: int) -> ShardSize:
        columns = self.stored, self._kept, self._room, self._requests, self._cache
        return ShardSize(*(int(column[shard]) for column in columns))

    def cache_of(self, shard: int) -> int:
        """Return the number of a shard's cache."""
        return self.sizes(shard).cache


def _first_shards(indexes: Sequence[Index], directories: Sequence[str]) -> Sequence[int]:
    total = sum(map(len, indexes))
    shared = {name for name, count in Counter(directories).items() if count > 1}
    if not shared:
        return range(total)
    files, first = list(range(total)), dict[tuple[str, ...], int]()
    start = 0
    for index, directory in zip(indexes, directories):
        names = [raw.basenames for raw, _ in index.file_tables]
        for shard in range(len(index)) if directory in shared else ():
            key = (directory, *(basenames[shard] for basenames in names))
            files[start + shard] = first.setdefault(key, start + shard)
        start += len(index)
    return files


def _sizes(index: Index, *, keep_zip: bool) -> list[Int64]:
    """Return raw, stored, kept and reserved bytes, and requests, of the shards of an index."""
    raw, stored, packed, requests = np.zeros((4, len(index)), np.int64)
    for files, zipped in without_scan_files(index).file_tables:
        size = files.bytes.astype(np.int64)
        comes = files.stored_bytes(zipped).astype(np.int64)
        raw += size
        stored += comes
        packed += 0 if zipped is None else zipped.bytes.astype(np.int64)
        large = -(-comes // (PART_BYTES * PARTS_IN_FLIGHT))
        requests += np.where(comes >= PARALLEL_DOWNLOAD_BYTES, large, size > 0)
    return [raw, stored, raw + packed * keep_zip, raw + packed, requests]
