"""Opened: the shards that one process has open, which it reads on even if they are evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from streamplug.read.open_shards import MAX_OPEN, PART_OPEN, SWEEP_SECONDS


class Opened:
    """What `streamplug.read.open_shards.OpenShards` keeps open where a cache has a limit.

    Without one it is of no account: what was fetched stays.
    """

    def __init__(self, limit: int | None) -> None:
        self._most = None if limit is None else limit // PART_OPEN
        self._open: dict[int, int] = {}
        self._recent: set[int] = set()
        self._kept: Counter[int] = Counter()
        self._bytes = 0
        self._swept = 0.0

    def keep(self, shard: int, times: int) -> None:
        """Have a shard stay open for so many times more; less if negative."""
        if self._most is not None:
            self._kept[shard] += times
            if not self._kept[shard]:
                del self._kept[shard]

    def has(self, shard: int) -> bool:
        """Say whether a shard is open, which is then used."""
        found = shard in self._open
        if found:
            self._recent.add(shard)
        return found

    def sweep(self, now: float, there: Callable[[int], bool]) -> None:
        """Close what was evicted, from time to time."""
        if self._most is not None and now - self._swept > SWEEP_SECONDS:
            self._swept = now
            for shard in [each for each in self._open if not there(each)]:
                if shard not in self._kept:
                    self._close(shard)

    def add(self, shard: int, size: int) -> None:
        """Open a shard, and close others if there are too many."""
        if self._most is None or shard in self._open:
            return
        self._open[shard] = size
        self._bytes += size
        for other in 2 * list(self._open) if self._too_many(self._most) else ():
            if not self._too_many(self._most):
                break
            if other == shard or other in self._kept or other not in self._open:
                continue
            if other not in self._recent:
                self._close(other)
            self._recent.discard(other)

    def _too_many(self, most: int) -> bool:
        return len(self._open) > MAX_OPEN or self._bytes > most

    def _close(self, shard: int) -> None:
        self._bytes -= self._open.pop(shard)
