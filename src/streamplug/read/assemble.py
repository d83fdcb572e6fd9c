"""Grouping of samples by shard, and assembly of samples from columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamplug.types import Int64, Sample


class ShardGroups:
    """Sample ids grouped by shard."""

    def __init__(self, starts: Int64, ids: Int64) -> None:
        """Group `ids`, shape ``[n]``; `starts` has the first sample id of each shard, and the total."""
        numbers = np.searchsorted(starts, ids, side="right") - 1
        self.rows: Int64 = ids - starts[numbers]  # row of each sample in its shard, shape [n]
        # NumPy sorts 16-bit integers in linear time.
        narrow = len(starts) <= np.iinfo(np.uint16).max
        self._order = np.argsort(numbers.astype(np.uint16) if narrow else numbers, kind="stable")
        ordered = numbers[self._order]
        cuts = np.flatnonzero(np.diff(ordered)) + 1
        self._ends = np.array([0, *cuts.tolist(), len(ids)] if len(ids) else [0], np.int64)
        self.shards: list[int] = ordered[self._ends[:-1]].tolist()  # distinct shards, ascending
        self.counts: Int64 = np.diff(self._ends)  # number of samples of each shard, shape [shards]

    def __iter__(self) -> Iterator[tuple[int, Int64]]:
        """Yield each shard, and the positions of its samples in `ids`, ascending."""
        for number, shard in enumerate(self.shards):
            yield shard, self.places(slice(number, number + 1))

    def places(self, groups: slice) -> Int64:
        """Return the positions in `ids` of the samples of some of the shards, shard by shard."""
        return self._order[self._ends[groups.start] : self._ends[groups.stop]]

    def per_sample(self, values: Int64) -> Int64:
        """Expand one value per shard to one value per sample."""
        result = np.empty(len(self._order), values.dtype)
        result[self._order] = np.repeat(values, self.counts)
        return result


def make_samples(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> list[Sample]:
    """Return samples from the names of the columns and the values of each, all of one length."""
    # Dict displays are nearly three times as fast as dicts of pairs, and most data sets have few columns.
    if len(names) == 1:
        (a,) = names
        return [{a: x} for x in columns[0]]
    if len(names) == 2:
        a, b = names
        return [{a: x, b: y} for x, y in zip(*columns)]
    if len(names) == 3:
        a, b, c = names
        return [{a: x, b: y, c: z} for x, y, z in zip(*columns)]
    if len(names) == 4:
        a, b, c, d = names
        return [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*columns)]
    return [dict(zip(names, row)) for row in zip(*columns)]
