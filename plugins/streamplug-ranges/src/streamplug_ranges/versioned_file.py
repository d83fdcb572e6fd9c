"""A file of a shard that is read by ranges of one version, some of which are held in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise

import numpy as np

from streamplug.types import Bytes1D, FileInfo, Int64
from streamplug_ranges.held_ranges import HeldPart, HeldRanges
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.row_groups import RangeFile
from streamplug_ranges.shard_headers import MAX_GAP_BYTES, SpeculativeRead
from streamplug_ranges.spans import coalesce_ranges, total_bytes

_MAX_GAP_SHARE = 10
"""Divisor of the requested bytes that gives the most that are fetched with them to save requests."""


class VersionedFile(RangeFile):
    """A stored file. Ranges that are not held are fetched when they are read."""

    def __init__(
        self,
        reader: RangeReader,
        file: FileInfo,
        usual_header_bytes: int,
        guard: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """Read a file; `guard` is entered for all requests, and may raise the error of an earlier one."""
        self.size, self.usual_header_bytes = file.bytes, usual_header_bytes
        self._reader, self._file, self._guard = reader, file, guard
        # Empty before the first request, and of a storage that cannot tell versions: None, so that it is not
        # asked again.
        self._version: str | None = ""
        self._held = HeldRanges()

    def read(self, ranges: Int64) -> list[Bytes1D]:
        found = [self._held.find(start, stop) for start, stop in ranges.tolist()]
        missing = [place for place, data in enumerate(found) if data is None]
        fetched = iter(self._fetch(ranges[missing]) if missing else ())
        return [next(fetched) if data is None else data for data in found]

    def hold(self, wanted: Mapping[int, Int64]) -> list[HeldPart]:
        """Hold the ranges of row groups, fetching those that are not held; see `HeldRanges.hold`."""
        return self._held.hold(wanted, self._fetch_parts)

    def release(self, parts: Sequence[HeldPart]) -> None:
        """Free ranges, unless others need them."""
        self._held.release(parts)

    def holds(self, group: int) -> bool:
        """Return whether the ranges of a row group are held, or being fetched."""
        return self._held.has(group)

    def _fetch_parts(self, ranges: Sequence[Int64]) -> list[list[Bytes1D]]:
        fetched = self._fetch(np.concatenate(ranges))
        cuts = accumulate(map(len, ranges), initial=0)
        return [fetched[start:stop] for start, stop in pairwise(cuts)]

    def _fetch(self, ranges: Int64) -> list[Bytes1D]:
        if not len(ranges):
            return []
        spans = coalesce_ranges(ranges, max_gap(ranges))
        with self._guard():
            if self._version is None:
                parts = self._reader.read(self._file, spans)
            else:
                parts, version = self._reader.read_version(self._file, spans, self._version)
                self._version = version or None
        return SpeculativeRead(spans, parts).copy_ranges(ranges)


def max_gap(ranges: Int64) -> int:
    """Return how far ranges may be apart to be fetched together: at most a tenth of their bytes is added.

    >>> max_gap(np.array([[0, 1000], [3000, 4000], [4500, 5500]]))
    100
    """
    return min(MAX_GAP_BYTES, total_bytes(ranges) // (_MAX_GAP_SHARE * max(len(ranges), 1)))
