"""Errors of shards of which parts could not be fetched."""

from __future__ import annotations

from streamplug.errors import AccessDenied, NotFound, StreamplugError, Transient
from streamplug.read import ShardFailures

FILE_ERRORS: tuple[type[StreamplugError], ...] = (NotFound, AccessDenied, Transient)
"""Errors of a request for a part of a file that other parts share."""


class RangeFailures(ShardFailures):
    """Errors of the shards of one stream, and where their files end that are truncated."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[int, int] = {}

    def remember(self) -> None:
        super().remember()
        self._ends = {}

    def set_end(self, shard: int, end: int) -> None:
        """Note that the file of a shard is truncated to `end` bytes."""
        if self.enabled:
            self._ends[shard] = end

    def end_of(self, shard: int, size: int) -> int:
        """Return the bytes of the file of a shard, which are `size` unless it is truncated."""
        return self._ends.get(shard, size)
