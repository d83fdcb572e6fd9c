"""Tells of a data set what a page about it shows: its shards, and how its values are spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamplug.index import Index
from streamplug.stream import Stream
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.column_sampling import MAX_PREVIEWS, ColumnSampler, ColumnStatistics, Values
from streamplug_tools.histogram import Histogram, make_histogram
from streamplug_tools.inspection import DatasetInfo, describe
from streamplug_tools.options import Place, streams
from streamplug_tools.previews import Preview
from streamplug_tools.row_access import cache_locally, raw_shard_bytes

_MAX_GROUPS = 720
"""Shards that are told one by one; of more, some in a row are told together."""
_MAX_SHARDS, _MIN_DOWNLOADED_SHARDS = 24, 4
"""From how many shards samples are taken; from so few if they must be fetched and have enough."""
_MAX_DOWNLOADED_BYTES = 256 << 20
"""Bytes of shards that are fetched for it, but for the first."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """A shard, or some in a row.

    Attributes:
        first: Number of the first.
        shards: How many.
        name: Of the first one's file.
        samples: How many they have.
        raw_bytes: Of their files, not compressed.
        stored_bytes: Of their files, as they are stored.
        compression: How they are compressed, or None; that of the first.
    """

    first: int
    shards: int
    name: str
    samples: int
    raw_bytes: int
    stored_bytes: int
    compression: str | None


@dataclass(frozen=True, slots=True)
class DatasetStatistics:
    """What a page about a data set shows.

    Attributes:
        set: What the data set is; without samples.
        cells: Its shards.
        shard_samples: How many samples shards have.
        shard_raw: How many bytes, not compressed.
        shard_stored: How many bytes, as they are stored.
        columns: Its columns.
        samples: Its first samples: the previews of their values by column.
        seen: How many samples were looked at.
        seen_shards: In how many shards.
        sample_bytes: How many bytes those samples have, as they are stored.
        failures: What could not be read.
    """

    set: DatasetInfo
    cells: tuple[ShardGroup, ...]
    shard_samples: Histogram | None
    shard_raw: Histogram | None
    shard_stored: Histogram | None
    columns: tuple[ColumnStatistics, ...]
    samples: tuple[tuple[int, dict[str, Preview]], ...]
    seen: int
    seen_shards: int
    sample_bytes: Histogram | None
    failures: tuple[str, ...]


def collect_statistics(
    source: Place | Stream,
    *,
    samples: int = 3,
    measured: int = 256,
    allow_unsafe_types: bool = False,
) -> DatasetStatistics:
    """Look at a data set more closely than `inspect`, with an amount of work that has a limit.

    Args:
        source: A path, a URL or a stream.
        samples: How many of its first samples to show.
        measured: Of about how many samples to tell sizes, lengths and values; with 0 for both, nothing
            but the index is read. They are of up to 24 shards, of fewer if shards must be fetched.
        allow_unsafe_types: Whether to decode what can run code.

    Raises:
        StreamplugError: If it has no index that can be used.
    """
    stream = streams(source)[0]
    with TemporaryDirectory() as folder:
        stream = cache_locally([stream], folder, whole=False)[0]
        index = stream.open().index
        raw, stored = raw_shard_bytes(index), _stored_sizes(index)
        groups = [*_groups(index, stored, samples, measured, fetched=stream.cache is not None)]
        sampler = ColumnSampler(
            Values(stream, index, allow_unsafe_types=allow_unsafe_types),
            index,
            first=samples,
            share=-(-MAX_PREVIEWS // max(len(groups), 1)),
            allow_unsafe_types=allow_unsafe_types,
        )
        for shard, ids in groups:
            if not sampler.sample_shard(shard, ids):
                break
        columns = dict.fromkeys(
            column.name for schema in index.schemas for column in schema.columns
        )
        return DatasetStatistics(
            set=describe(stream.url, index),
            cells=tuple(_cells(index, raw, stored)),
            shard_samples=make_histogram(index.samples),
            shard_raw=make_histogram(raw),
            shard_stored=make_histogram(stored),
            columns=tuple(sampler.column(name) for name in columns),
            samples=tuple(sampler.first.items()),
            seen=sampler.count,
            seen_shards=sampler.shards,
            sample_bytes=make_histogram(sampler.bytes),
            failures=tuple(sampler.failures),
        )


def _stored_sizes(index: Index) -> Int64:
    """Return how many bytes the files of each shard have, as they are stored, shape ``[shards]``."""
    sizes: Int64 = np.zeros(len(index), np.int64)
    for name, raw in index.tables.items():
        if name.startswith("raw_"):
            packed = index.tables.get(f"zip_{name[4:]}")
            sizes += (
                raw.bytes if packed is None else np.where(packed.bytes, packed.bytes, raw.bytes)
            ).astype(np.int64)
    return sizes


def _cells(index: Index, raw: Int64, stored: Int64) -> Iterator[ShardGroup]:
    count = len(index)
    if not count:
        return
    firsts = np.unique(
        np.linspace(0, count, min(count, _MAX_GROUPS), endpoint=False).astype(np.int64)
    )
    shards = np.diff(firsts, append=count)
    sums = [np.add.reduceat(each, firsts).tolist() for each in (index.samples, raw, stored)]
    names = [table.basenames for key, table in index.tables.items() if key.startswith("raw_")]
    for n, first in enumerate(firsts.tolist()):
        name = next((name for each in names if (name := each[first])), "")
        samples, raw_bytes, stored_bytes = (each[n] for each in sums)
        packed = index.schema(first).compression
        yield ShardGroup(first, int(shards[n]), name, samples, raw_bytes, stored_bytes, packed)


# -- samples ------------------------------------------------------------------------------


def _groups(
    index: Index, stored: Int64, first: int, measured: int, *, fetched: bool
) -> Iterator[tuple[int, Int64]]:
    """Yield shards, and the samples to look at in each."""
    shards = np.flatnonzero(index.samples)
    wanted = (
        max(-(-measured * len(shards) // max(index.size, 1)), _MIN_DOWNLOADED_SHARDS)
        if fetched
        else _MAX_SHARDS
    )
    most = min(wanted, _MAX_SHARDS, measured, len(shards))
    shards = shards[np.unique(np.linspace(0, len(shards) - 1, most).astype(np.int64))]
    if fetched:
        shards = shards[
            (np.cumsum(stored[shards]) <= _MAX_DOWNLOADED_BYTES) | (np.arange(len(shards)) == 0)
        ]
    each = -(-measured // max(len(shards), 1))
    ids = [np.arange(min(first, index.size), dtype=np.int64)]
    for shard in shards.tolist():
        start, stop = index.starts[shard : shard + 2].tolist()
        ids.append(
            np.unique(np.linspace(start, stop - 1, min(each, stop - start)).astype(np.int64))
        )
    chosen = np.unique(np.concatenate(ids))
    of = np.searchsorted(np.asarray(index.starts), chosen, side="right") - 1
    for shard in np.unique(of).tolist():
        yield shard, chosen[of == shard]
