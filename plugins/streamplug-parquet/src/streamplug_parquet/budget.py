"""How much of what was decoded this process keeps."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from functools import cached_property
from threading import Lock

from streamplug.config import parse_bytes
from streamplug_parquet.chunks import Chunk

VARIABLE = "STREAMPLUG_PARQUET_MEMORY"
_DEFAULT = "512mb"

Key = tuple[int, int, str]
"""Which reader, which row group of it, and which column."""


class Budget:
    """Decoded columns of row groups, as many as there is room for: those not used for long go first."""

    def __init__(self, limit: int | None = None) -> None:
        """Keep as many bytes as `limit`; None for what the environment says."""
        if limit is not None:
            self.limit = limit
        self.held = 0
        self._chunks: dict[Key, Chunk] = {}
        self._used: dict[Key, bool] = {}
        self._gone: deque[int] = deque()
        self._lock = Lock()

    @cached_property
    def limit(self) -> int:
        """Bytes that are kept at most, but for what is in use."""
        return parse_bytes(os.environ.get(VARIABLE, _DEFAULT), VARIABLE)

    def get(self, key: Key) -> Chunk | None:
        """Return a column of a row group, if it is there."""
        found = self._chunks.get(key)
        if found is not None:
            self._used[key] = True
        return found

    def put(self, reader: int, group: int, chunks: Mapping[str, Chunk]) -> None:
        """Keep columns of a row group, if there is room for them at all."""
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
            self._chunks[key] = chunk  # it was used since it was last passed over
        else:
            self.held -= chunk.nbytes

    def forget(self, reader: int) -> None:
        """Let go of all of a reader; may be called at any time, by the garbage collector too."""
        self._gone.append(reader)

    def _forget_gone(self) -> None:
        if not self._gone:
            return
        gone = set()
        while self._gone:
            gone.add(self._gone.popleft())
        for key in [key for key in self._chunks if key[0] in gone]:
            self.held -= self._chunks.pop(key).nbytes
            self._used.pop(key, None)

    def in_child(self) -> None:
        """Begin anew in a fork: another thread may have been in the middle of it."""
        self._lock = Lock()
        self._chunks, self._used, self.held = {}, {}, 0


budget = Budget()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=budget.in_child)
