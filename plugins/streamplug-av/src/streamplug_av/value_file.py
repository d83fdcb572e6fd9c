"""A stored value as a seekable file that fetches what is read of it."""

from __future__ import annotations

import io
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from streamplug.interfaces import StoredRange

_MIN_READ_BYTES = 8 << 10
_MAX_READ_BYTES = 1 << 20
_MAX_CACHED_BYTES = 64 << 20


class ValueFile(io.RawIOBase):
    """A file for FFmpeg over a stored value, which keeps what it has fetched.

    Reads end with a block that was fetched, so that FFmpeg's reading ahead fetches nothing. Outside of such
    blocks, more is read each time that a read follows the previous one.
    """

    def __init__(self, value: memoryview | bytes | StoredRange) -> None:
        self.value = value
        self._at = 0
        self._read_bytes = _MIN_READ_BYTES
        self._starts: list[int] = []
        self._blocks: dict[int, memoryview] = {}  # by start, in the order of arrival
        if not isinstance(value, StoredRange):
            self._starts, self._blocks = [0], {0: memoryview(value)}

    def __len__(self) -> int:
        return len(self.value)

    @property
    def is_far(self) -> bool:
        """Whether reads fetch."""
        return isinstance(self.value, StoredRange)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position; nothing is fetched."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self)}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes; fewer at the end of a block, none at the end of the file."""
        if size < 0:
            size = len(self)
        size = min(size, len(self) - self._at)
        if size <= 0:
            return b""
        start = self._block_at(self._at)
        if start is None:
            self._fetch_ahead()
            start = self._at
        offset = self._at - start
        data = bytes(self._blocks[start][offset : offset + size])
        self._at += len(data)
        return data

    def read_at(self, at: int, size: int) -> bytes:
        """Return bytes from a place, fewer at the end of the file; the position stays."""
        position, self._at = self._at, at
        data = b""
        try:
            while len(data) < size and (part := self.read(size - len(data))):
                data += part
        finally:
            self._at = position
        return data

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def fetch(self, ranges: list[tuple[int, int]]) -> None:
        """Fetch ranges of the file, in one call; those that are cached are not fetched again."""
        missing, end = [], 0
        for start, stop in sorted(ranges):  # of groups of pictures, which may overlap
            missing += self._missing(max(start, end), stop)
            end = max(end, stop)
        if not missing or not isinstance(self.value, StoredRange):
            return
        for (start, _), data in zip(missing, self.value.read(np.array(missing, np.int64))):
            self._blocks[start] = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
            insort(self._starts, start)
        self._evict(len(missing))

    def view(self) -> ValueFile:
        """Return the same file with a position of its own, and what is fetched in common."""
        other = ValueFile(self.value)
        other._blocks, other._starts = self._blocks, self._starts
        return other

    def copy_blocks(self, other: ValueFile) -> None:
        """Take what another file of the same value has fetched."""
        self._blocks, self._starts = dict(other._blocks), list(other._starts)

    def _fetch_ahead(self) -> None:
        previous = self._block_at(self._at - 1) if self._at else None
        doubled = min(2 * self._read_bytes, _MAX_READ_BYTES)
        self._read_bytes = _MIN_READ_BYTES if previous is None else doubled
        following = bisect_right(self._starts, self._at)
        stop = min(self._at + self._read_bytes, len(self))
        if following < len(self._starts):
            stop = min(stop, self._starts[following])
        self.fetch([(self._at, stop)])

    def _block_at(self, at: int) -> int | None:
        """Return the start of the block that contains a position."""
        place = bisect_right(self._starts, at) - 1
        if place < 0:
            return None
        start = self._starts[place]
        return start if at < start + len(self._blocks[start]) else None

    def _missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        parts, at = [], start
        while at < stop:
            block = self._block_at(at)
            if block is not None:
                at = block + len(self._blocks[block])
                continue
            following = bisect_right(self._starts, at)
            end = min(stop, self._starts[following] if following < len(self._starts) else stop)
            parts.append((at, end))
            at = end
        return parts

    def _evict(self, newest: int) -> None:
        """Drop the oldest blocks above the limit, except the first, which has the head of the container."""
        total = sum(map(len, self._blocks.values()))
        for start in list(self._blocks)[1 : len(self._blocks) - newest]:
            if total <= _MAX_CACHED_BYTES:
                break
            total -= len(self._blocks.pop(start))
            self._starts.remove(start)
