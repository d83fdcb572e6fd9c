"""Grouping of samples by shard, and assembly of the values that were read per group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import Column
from streamplug.types import ColumnValues, Int64, Sample

PlacedValues = tuple[Int64, Column, ColumnValues]
"""Positions of the values among the requested samples, their column, and the values."""


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


def merge_values(count: int, parts: Sequence[PlacedValues]) -> ColumnValues:
    """Merge the values of one column into an array, or a list if they differ in dtype or shape.

    A slice of the list is an array if its values do not differ: a batch must not depend on which others were
    read together with it.
    """
    first = parts[0][2]
    if isinstance(first, np.ndarray) and all(
        isinstance(v, np.ndarray) and v.dtype == first.dtype and v.shape[1:] == first.shape[1:]
        for _, _, v in parts
    ):
        array = np.empty((count, *first.shape[1:]), first.dtype)
        for places, _, values in parts:
            array[places] = values
        return array
    mixed = _MixedValues(count, parts)
    return mixed if any(isinstance(v, np.ndarray) for _, _, v in parts) else list(mixed)


class _MixedValues(list[Any]):
    def __init__(self, count: int, parts: Sequence[PlacedValues]) -> None:
        super().__init__([None] * count)
        self._parts = parts
        for places, column, values in parts:
            for place, value in zip(places.tolist(), column.encoding.unbatch(values)):
                self[place] = value

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return super().__getitem__(at)
        start, stop, step = at.indices(len(self))
        if step != 1:
            return super().__getitem__(at)
        inner: list[PlacedValues] = []
        for places, column, values in self._parts:
            inside = np.flatnonzero((places >= start) & (places < stop))
            if len(inside):
                some = (
                    values[inside]
                    if isinstance(values, np.ndarray)
                    else [values[i] for i in inside.tolist()]
                )
                inner.append((places[inside] - start, column, some))
        part = merge_values(stop - start, inner) if inner else []
        return list(part) if isinstance(part, _MixedValues) else part

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


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
