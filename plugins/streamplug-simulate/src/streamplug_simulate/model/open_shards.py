"""Open shards of one process, which it can read after their eviction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from streamplug.read import MAX_OPEN, PART_OPEN, SWEEP_SECONDS


class OpenShardModel:
    """Model of `streamplug.read.open_shards.OpenShards` for a cache with a limit.

    Without a limit nothing is evicted, and nothing is modelled.
    """

    def __init__(self, limit: int | None) -> None:
        self._max_bytes = None if limit is None else limit // PART_OPEN
        self._open: dict[int, int] = {}
        self._recent: set[int] = set()
        self._references: Counter[int] = Counter()
        self._bytes = 0
        self._swept = 0.0

    def add_references(self, shard: int, change: int) -> None:
        """Change the reference count of a shard."""
        if self._max_bytes is not None:
            self._references[shard] += change
            if not self._references[shard]:
                del self._references[shard]

    def has(self, shard: int) -> bool:
        """Return whether a shard is open, and mark it as used."""
        is_open = shard in self._open
        if is_open:
            self._recent.add(shard)
        return is_open

    def sweep(self, now: float, is_cached: Callable[[int], bool]) -> None:
        """Close evicted shards from time to time."""
        if self._max_bytes is not None and now - self._swept > SWEEP_SECONDS:
            self._swept = now
            for shard in [number for number in self._open if not is_cached(number)]:
                if shard not in self._references:
                    self._close(shard)

    def add(self, shard: int, size: int) -> None:
        """Open a shard, and close others above the limits."""
        if self._max_bytes is None or shard in self._open:
            return
        self._open[shard] = size
        self._bytes += size
        for other in 2 * list(self._open) if self._is_full(self._max_bytes) else ():
            if not self._is_full(self._max_bytes):
                break
            if other == shard or other in self._references or other not in self._open:
                continue
            if other not in self._recent:
                self._close(other)
            self._recent.discard(other)

    def _is_full(self, max_bytes: int) -> bool:
        return len(self._open) > MAX_OPEN or self._bytes > max_bytes

    def _close(self, shard: int) -> None:
        self._bytes -= self._open.pop(shard)
