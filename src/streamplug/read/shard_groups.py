"""Groups: some samples by the shards that they are in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamplug.types import Int64

_U16 = 1 << 16


class ShardGroups:
    """Some samples by the shards that they are in.

    Attributes:
        shards: The distinct shards, ascending.
        counts: How many of the samples each has, shape ``[shards]``.
        rows: The place of each sample in its shard, shape ``[n]``.
    """

    def __init__(self, starts: Int64, ids: Int64) -> None:
        """Group samples.

        Args:
            starts: First sample id of each shard, and the total, shape ``[all shards + 1]``.
            ids: The samples, shape ``[n]``.
        """
        numbers = np.searchsorted(starts, ids, side="right") - 1
        self.rows: Int64 = ids - starts[numbers]
        # Small numbers are sorted in linear time.
        self._order = np.argsort(
            numbers.astype(np.uint16) if len(starts) < _U16 else numbers, kind="stable"
        )
        ordered = numbers[self._order]
        cuts = np.flatnonzero(np.diff(ordered)) + 1
        self._ends = np.array([0, *cuts.tolist(), len(ids)] if len(ids) else [0], np.int64)
        self.shards: list[int] = ordered[self._ends[:-1]].tolist()
        self.counts: Int64 = np.diff(self._ends)

    def __iter__(self) -> Iterator[tuple[int, Int64]]:
        """Yield each shard, and the places of its samples among all, ascending."""
        for at, shard in enumerate(self.shards):
            yield shard, self.places(slice(at, at + 1))

    def places(self, some: slice) -> Int64:
        """Return the places of the samples of some of the shards, shard by shard."""
        return self._order[self._ends[some.start] : self._ends[some.stop]]

    def in_order(self, values: Int64) -> Int64:
        """Return a value for each sample, from those for each shard."""
        found = np.empty(len(self._order), values.dtype)
        found[self._order] = np.repeat(values, self.counts)
        return found
