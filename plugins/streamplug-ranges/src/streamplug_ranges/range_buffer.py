"""Buffers that stand for a whole shard file, and fetch what is read of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from streamplug.interfaces import GatherBuffer, StoredRange
from streamplug.types import Bytes1D, FileInfo, Int64
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.shard_headers import MAX_GAP_BYTES, SpeculativeRead
from streamplug_ranges.spans import coalesce_ranges


class RangeBuffer(GatherBuffer):
    """The bytes of a shard file, fetched by range when they are asked for."""

    def __init__(self, store: RangeReader, file: FileInfo) -> None:
        self._read, self._size = partial(store.read, file), file.bytes

    def __len__(self) -> int:
        return self._size

    def gather(self, starts: Int64, size: int) -> Bytes1D:
        """Fetch values of equal size, as `GatherBuffer.gather`."""
        parts = self.slices(starts, np.full(len(starts), size, np.int64))
        return np.frombuffer(b"".join(parts), np.uint8)

    def join(self, starts: Int64, sizes: Int64) -> Bytes1D:
        """Fetch short values, as `GatherBuffer.join`."""
        ended = b"".join(bytes(part) + b"\0" for part in self.slices(starts, sizes))
        return np.frombuffer(ended, np.uint8)

    def slices(self, starts: Int64, sizes: Int64) -> list[memoryview]:
        """Fetch values, as `GatherBuffer.slices`."""
        self._check_inside(starts, starts + sizes)
        ranges = np.stack([starts, starts + sizes], axis=1)[sizes > 0]
        spans = coalesce_ranges(ranges, MAX_GAP_BYTES)
        parts = iter(SpeculativeRead(spans, self._read(spans)).copy_ranges(ranges))
        return [memoryview(next(parts) if size else b"") for size in sizes.tolist()]  # type: ignore[arg-type]  # an array is a buffer

    def values(self, starts: Int64, sizes: Int64) -> Sequence[StoredRange]:
        """Return values that are not fetched yet."""
        self._check_inside(starts, starts + sizes)
        places = zip(starts.tolist(), sizes.tolist())
        return [StoredRange(self._read, start, size) for start, size in places]
