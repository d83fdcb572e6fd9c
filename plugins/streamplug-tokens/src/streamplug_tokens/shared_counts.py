"""Counting that the machines of a run divide among themselves, shard by shard, through torch's store."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from streamplug.transfer import map_threads
from streamplug.types import Int64

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 600.0
"""Time without a new result after which a process counts the shards of others itself."""
_FAILED = b"-"
_LOG = logging.getLogger("streamplug_tokens")


class SharedCounts:
    """Counts shards together with the other processes that count the same ones.

    Each takes the next shard that nobody has taken, and publishes its counts. A process that comes later
    finds them all, and one that is alone counts all shards, so that none waits for one that never comes.
    """

    def __init__(self, store: Any, name: str) -> None:
        """Share counts under a name, which tells what is counted; `store` None shares nothing."""
        self._store, self._prefix = store, f"streamplug/tokens/{name}"

    def count(
        self, shards: Sequence[int], count: Callable[[int], Int64], max_threads: int
    ) -> Iterator[tuple[int, Int64]]:
        """Yield each shard and its counts, in any order.

        Args:
            shards: Numbers of the shards, the same in all processes.
            count: Returns the counts of a shard.
            max_threads: Shards that this process counts at the same time.
        """
        if self._store is None:
            yield from zip(shards, map_threads(count, shards, max_threads))
            return
        ours: dict[int, Int64] = {}
        for of_thread in map_threads(
            lambda _: self._count_free_shards(shards, count), range(max_threads), max_threads
        ):
            ours |= of_thread
        yield from ours.items()
        others = [shard for shard in shards if shard not in ours]
        if others:
            _LOG.info("waiting for the counts of %d shards by other processes", len(others))
        yield from self._collect(others, count, max_threads)

    def _count_free_shards(
        self, shards: Sequence[int], count: Callable[[int], Int64]
    ) -> dict[int, Int64]:
        counts = {}
        while (number := self._store.add(f"{self._prefix}/next", 1) - 1) < len(shards):
            shard = shards[number]
            try:
                counts[shard] = count(shard)
            except BaseException:
                self._store.set(self._key(shard), _FAILED)  # others find the error themselves
                raise
            self._store.set(self._key(shard), counts[shard].astype("<i8").tobytes().hex())
        return counts

    def _collect(
        self, shards: Sequence[int], count: Callable[[int], Int64], max_threads: int
    ) -> Iterator[tuple[int, Int64]]:
        """Yield the counts of other processes, and those of shards that they cannot count."""
        pending, failed, deadline = list(shards), [], time.monotonic() + _PATIENCE_SECONDS
        while pending and time.monotonic() < deadline:
            missing = []
            for shard in pending:
                if not self._store.check([self._key(shard)]):
                    missing.append(shard)
                    continue
                value = bytes(self._store.get(self._key(shard)))
                if value == _FAILED:
                    failed.append(shard)
                    continue
                yield shard, np.frombuffer(bytes.fromhex(value.decode()), "<i8").astype(np.int64)
            if len(missing) < len(pending):
                deadline = time.monotonic() + _PATIENCE_SECONDS
            else:
                time.sleep(_POLL_SECONDS)
            pending = missing
        mine = [*failed, *pending]
        yield from zip(mine, map_threads(count, mine, max_threads))

    def _key(self, shard: int) -> str:
        return f"{self._prefix}/{shard}"


def connect_store() -> Any:
    """Return the store of torch's process group; None without one, or if this is its only process."""
    group: Any = sys.modules.get("torch.distributed")
    if group is None or not (group.is_available() and group.is_initialized()):
        return None
    if group.get_world_size() < 2:
        return None
    from streamplug.adapters import connect_to_store

    return connect_to_store(group)
