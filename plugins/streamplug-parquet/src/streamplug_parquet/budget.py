"""Cache of decoded column chunks, shared by all readers of a process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

from streamplug.config import parse_bytes

if TYPE_CHECKING:  # which take the limit from here
    from streamplug_parquet.chunks import Chunk

VARIABLE = "STREAMPLUG_PARQUET_MEMORY"
_DEFAULT = "512mb"

Key = tuple[int, int, str]
"""Number of the reader, row group and column name."""


class Budget:
    """Cache of decoded column chunks with a byte limit and second-chance eviction."""

    def __init__(self, limit: int | None = None) -> None:
        """Limit the cache to `limit` bytes; None reads the limit from the environment."""
        if limit is not None:
            self.limit = limit
        self.held = 0
        self._chunks: dict[Key, Chunk] = {}
        self._used: dict[Key, bool] = {}
        self._closed: deque[int] = deque()
        self._lock = Lock()

    @cached_property
    def limit(self) -> int:
        """Byte limit of cached chunks."""
        return parse_bytes(os.environ.get(VARIABLE, "").strip() or _DEFAULT, VARIABLE)

    def get(self, key: Key) -> Chunk | None:
        """Return a cached chunk, or None."""
        chunk = self._chunks.get(key)
        if chunk is not None:
            self._used[key] = True
        return chunk

    def put(self, reader: int, group: int, chunks: Mapping[str, Chunk]) -> None:
        """Cache chunks of a row group, except those larger than the limit, and evict others."""
        with self._lock:
            self._forget_gone()
            for name, chunk in chunks.items():
                key = (reader, group, name)
                if key not in self._chunks and chunk.nbytes <= self.limit:
                    self._chunks[key] = chunk
                    self.held += chunk.nbytes
            while self.held > self.limit:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        key = next(iter(self._chunks))
        chunk = self._chunks.pop(key)
        if self._used.pop(key, False):
            self._chunks[key] = chunk  # second chance: used since the last pass
        else:
            self.held -= chunk.nbytes

    def forget(self, reader: int) -> None:
        """Schedule the eviction of a reader's chunks; safe to call from the garbage collector."""
        self._closed.append(reader)

    def _forget_gone(self) -> None:
        if not self._closed:
            return
        closed = set()
        while self._closed:
            closed.add(self._closed.popleft())
        for key in [key for key in self._chunks if key[0] in closed]:
            self.held -= self._chunks.pop(key).nbytes
            self._used.pop(key, None)

    def in_child(self) -> None:
        """Reset after a fork, as another thread may have held the lock."""
        self._lock = Lock()
        self._chunks, self._used, self.held = {}, {}, 0


budget = Budget()

os.register_at_fork(after_in_child=budget.in_child)
