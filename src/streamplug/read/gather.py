"""Grouping of samples by shard, and gathering from several uniform shards, at once or batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from streamplug.interfaces import GatherBuffer
from streamplug.read.memory_map import spanned
from streamplug.read.open_shards import OpenShard
from streamplug.types import ColumnValues, Int64, Sample

_MIN_ROWS_TO_POPULATE = 64
"""Rows read of a shard at once from which on mapping all of its pages is faster."""

_MAX_POPULATED_BYTES = 256 << 20
"""File size from which on mapping all pages takes too long, or too much memory for a few rows."""


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


Batch: TypeAlias = "dict[str, ColumnValues]"


class GatheredValues(NamedTuple):
    """Values of some of the requested samples."""

    shard: OpenShard  # one of their shards
    # Their positions among the requested samples; None if they are all of them, in order.
    places: Int64 | None
    values: list[ColumnValues]  # the values of each column


def gather_values(shards: Sequence[OpenShard], groups: ShardGroups, part: slice) -> GatheredValues:
    """Read the samples of `shards`, which are those of `groups` at `part`."""
    _populate(shards, groups.counts[part])
    places = None if len(shards) == len(groups.shards) else groups.places(part)
    first = shards[0]
    if len(shards) == 1 or first.layout is None:
        rows = groups.rows if places is None else groups.rows[places]
        return GatheredValues(first, places, first.take(rows))
    where = _where(shards, groups, part)
    values = first.layout.take(*where, first.columns)
    first.check_counts(values, len(where[-1]))
    if first.lazy_columns:
        numbers = np.arange(len(shards))
        owners = (
            groups.per_sample(numbers) if places is None else numbers.repeat(groups.counts[part])
        )
        first.set_places(values, map(shards.__getitem__, owners.tolist()), where[-1])
    return GatheredValues(first, places, values)


def gather_batches(
    shards: Sequence[OpenShard],
    groups: ShardGroups,
    parts: Sequence[slice],
    read_batch: Callable[[slice], Batch],
) -> Iterator[Batch]:
    """Yield batches of samples of uniform shards, located at once; each is decoded on demand.

    `read_batch` is the fallback on errors; it names the damaged sample.
    """
    _populate(shards, groups.counts)
    columns, layout = shards[0].columns, shards[0].layout
    names = [column.name for column in columns]
    where = _where(shards, groups, slice(0, len(shards)))
    batches = layout.take_parts(*where, columns, parts=parts) if layout else iter(())
    owners = groups.per_sample(np.arange(len(shards))) if shards[0].lazy_columns else None
    for part in parts:
        batch: Batch | None
        try:
            values = next(batches)
            shards[0].check_counts(values, part.stop - part.start)
            if owners is not None:
                of_part = map(shards.__getitem__, owners[part].tolist())
                shards[0].set_places(values, of_part, groups.rows[part])
            batch = dict(zip(names, values))
        except Exception:  # noqa: BLE001 - this ends the generator: later batches are read below, too
            batch = None  # not read here, where its error would seem to be another one
        yield read_batch(part) if batch is None else batch


def slice_columns(columns: Mapping[str, ColumnValues], parts: Sequence[slice]) -> Iterator[Batch]:
    """Yield batches as slices of columns that were read at once."""
    return ({name: values[part] for name, values in columns.items()} for part in parts)


def _populate(shards: Sequence[OpenShard], counts: Int64) -> None:
    for shard, count in zip(shards, counts.tolist()):
        if (
            not shard.populated
            and count >= _MIN_ROWS_TO_POPULATE
            and shard.bytes < _MAX_POPULATED_BYTES
        ):
            shard.populate()


def _where(
    shards: Sequence[OpenShard], groups: ShardGroups, part: slice
) -> tuple[GatherBuffer, Int64, Int64, Int64]:
    """Return a buffer, and for each sample the offset and size of its shard in it, and its row."""
    data, starts = spanned([shard.data for shard in shards])
    sizes = np.array([shard.bytes for shard in shards], np.int64)
    if len(shards) == len(groups.shards):
        return data, groups.per_sample(starts), groups.per_sample(sizes), groups.rows
    counts, rows = groups.counts[part], groups.rows[groups.places(part)]
    return data, np.repeat(starts, counts), np.repeat(sizes, counts), rows
