"""Reads what is asked for of shards that can be read together: all of it at once, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from streamplug.interfaces import GatherBuffer
from streamplug.read.memory import spanned
from streamplug.read.open_shards import OpenShard
from streamplug.read.shard_groups import ShardGroups
from streamplug.types import ColumnValues, Int64

Batch: TypeAlias = "dict[str, ColumnValues]"

_SWEEP = 64
"""Rows asked of one shard at once from which on it pays to map the whole file."""

_LARGE = 256 << 20
"""Bytes of a file from which on that would take too long, or more memory than a few rows are worth."""


class GatheredValues(NamedTuple):
    """What was read of some samples.

    Attributes:
        shard: One of the shards that they are of.
        places: Which of the samples asked for they are; None if they are all, in the order asked for.
        values: Of each column.
    """

    shard: OpenShard
    places: Int64 | None
    values: list[ColumnValues]


def gather_values(shards: Sequence[OpenShard], groups: ShardGroups, part: slice) -> GatheredValues:
    """Read the samples of some of the shards, `part` of those of `groups`."""
    _populate(shards, groups.counts[part])
    places = None if len(shards) == len(groups.shards) else groups.places(part)
    first = shards[0]
    if len(shards) == 1 or first.layout is None:
        rows = groups.rows if places is None else groups.rows[places]
        return GatheredValues(first, places, first.reader.take(rows, first.columns))
    where = _where(shards, groups, part)
    return GatheredValues(first, places, first.layout.take(*where, first.columns))


def gather_batches(
    shards: Sequence[OpenShard],
    groups: ShardGroups,
    parts: Sequence[slice],
    again: Callable[[slice], Batch],
) -> Iterator[Batch]:
    """Yield parts of all samples, found at once, but decoded not long before each is asked for.

    Args:
        shards: Those of the samples, which can be read together.
        groups: The samples.
        parts: Which of them are wanted together, one part after the other.
        again: Reads a part where this failed, or tells which sample is damaged.
    """
    _populate(shards, groups.counts)
    columns, layout = shards[0].columns, shards[0].layout
    names = [column.name for column in columns]
    where = _where(shards, groups, slice(0, len(shards)))
    found = layout.take_parts(*where, columns, parts=parts) if layout else iter(())
    for part in parts:
        try:
            batch = dict(zip(names, next(found)))
        except Exception:  # noqa: BLE001 - having failed it gives no more: the rest comes this way, too
            batch = again(part)
        yield batch


def slice_columns(columns: Mapping[str, ColumnValues], parts: Sequence[slice]) -> Iterator[Batch]:
    """Yield parts of columns that were read at once."""
    return ({name: values[part] for name, values in columns.items()} for part in parts)


def _populate(shards: Sequence[OpenShard], counts: Int64) -> None:
    for shard, count in zip(shards, counts.tolist()):
        if not shard.populated and count >= _SWEEP and shard.bytes < _LARGE:
            shard.populate()


def _where(
    shards: Sequence[OpenShard], groups: ShardGroups, part: slice
) -> tuple[GatherBuffer, Int64, Int64, Int64]:
    """Return a buffer, and for each sample where its shard begins in it, that one's size, and its row."""
    data, starts = spanned([shard.data for shard in shards])
    sizes = np.array([shard.bytes for shard in shards], np.int64)
    if len(shards) == len(groups.shards):
        return data, groups.in_order(starts), groups.in_order(sizes), groups.rows
    counts, rows = groups.counts[part], groups.rows[groups.places(part)]
    return data, np.repeat(starts, counts), np.repeat(sizes, counts), rows
