"""Samples of a shard whose bytes are fetched together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamplug.types import Bytes1D, Int64
from streamplug_ranges.spans import locate_ranges

_POSITION_ZERO = np.zeros(1, np.int64)

# A sample waits for its whole group: larger groups delay the samples that are needed first.
MAX_GROUP_BYTES = 4 << 20


class SampleRange:
    """Some samples of one shard, fetched together."""

    def __init__(self, number: int, shard: int, rows: Int64, weight: int) -> None:
        # Number of the shard over all streams, its number in its stream, and approximate bytes.
        self.number, self.shard, self.weight = number, shard, weight
        self.rows: Int64 = np.unique(rows) if len(rows) > 1 else rows
        self.data: Bytes1D = np.empty(0, np.uint8)
        self.starts: Int64 = np.zeros(len(self.rows), np.int64)  # offset of each row in `data`

    def set_bytes(
        self, is_stored: NDArray[np.bool_], ranges: Int64, spans: Int64, parts: Sequence[Bytes1D]
    ) -> None:
        """Set the bytes of the samples.

        Args:
            is_stored: Mask of the rows with any bytes, shape ``[rows]``.
            ranges: Byte ranges of these rows in the file, shape ``[n, 2]``.
            spans: Byte ranges of the file that contain them, shape ``[m, 2]``; ascending, none empty.
            parts: The bytes of the spans.
        """
        part, places = locate_ranges(ranges, spans)
        part_starts = np.cumsum([0, *map(len, parts)])
        self.starts[is_stored] = part_starts[part] + places
        self.data = parts[0] if len(parts) == 1 else np.concatenate(parts)

    def find(self, rows: Int64) -> Int64 | None:
        """Return the positions of `rows` in this range; None if one is not in it."""
        if len(rows) == len(self.rows) == 1:
            return _POSITION_ZERO if rows[0] == self.rows[0] else None
        places = np.searchsorted(self.rows, rows)
        places[places == len(self.rows)] = 0
        return places if np.array_equal(self.rows[places], rows) else None


def group_ranges(ranges: Iterable[SampleRange], max_samples: int) -> list[list[SampleRange]]:
    """Group sample ranges of one stream that are fetched together, in the order of need."""
    groups: list[list[SampleRange]] = []
    num_rows = num_bytes = 0
    for sample_range in ranges:
        num_rows += len(sample_range.rows)
        num_bytes += sample_range.weight
        if not groups or num_rows > max_samples or num_bytes > MAX_GROUP_BYTES:
            groups.append([])
            num_rows, num_bytes = len(sample_range.rows), sample_range.weight
        groups[-1].append(sample_range)
    return groups
