"""Statistics of a data set for its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamplug.config import check_flags
from streamplug.index import Index
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug.types import Int64
from streamplug_tools.column_sampling import MAX_PREVIEWS, ColumnSampler, ColumnStatistics, Values
from streamplug_tools.histogram import Histogram, make_histogram
from streamplug_tools.inspection import DatasetInfo, describe, without_scan_files
from streamplug_tools.options import Location, check_count, whole_stream
from streamplug_tools.previews import Preview
from streamplug_tools.row_access import cache_locally

_MAX_GROUPS = 720
"""With more shards, consecutive ones are grouped."""
_MAX_SHARDS, _MIN_DOWNLOADED_SHARDS = 24, 4
"""Shards to sample from; the latter if they must be downloaded and have enough samples."""
_MAX_DOWNLOADED_BYTES = 256 << 20
"""Limit of downloads, besides the first shard."""


@dataclass(frozen=True, slots=True)
class ShardGroup:
    """A shard, or a group of consecutive shards.

    Attributes:
        first: Number of the first shard.
        shards: Number of shards.
        name: File name of the first shard.
        samples: Number of samples.
        raw_bytes: Uncompressed bytes.
        stored_bytes: Stored bytes.
        compression: Compression of the first shard, or None.
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
    """Statistics of a data set.

    Attributes:
        set: Summary without samples.
        cells: Shards, or groups of them.
        shard_samples: Histogram of samples per shard.
        shard_raw: Histogram of uncompressed bytes per shard.
        shard_stored: Histogram of stored bytes per shard.
        columns: Statistics of each column.
        samples: Previews of some samples by column.
        seen: Number of samples read.
        seen_shards: Number of shards of which samples were read.
        sample_bytes: Histogram of stored bytes per sample.
        failures: Errors of reading.
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
    source: Location | Stream,
    *,
    samples: int = 3,
    measured: int = 256,
    allow_unsafe_types: bool = False,
) -> DatasetStatistics:
    """Collect statistics of a data set, with bounded work.

    Args:
        source: A path, a URL or a stream.
        samples: Number of samples to preview, spread over the data set.
        measured: Approximate number of samples to measure, from up to 24 shards, from fewer if they must be
            downloaded. With 0 for both, only the index is read.
        allow_unsafe_types: Whether to decode columns whose decoding can run code.

    Raises:
        ConfigError: If the stream selects rows.
        StreamplugError: If it has no index that can be used.
    """
    samples, measured = check_count("samples", samples), check_count("measured", measured)
    check_flags(allow_unsafe_types=allow_unsafe_types)
    stream = whole_stream(source)
    with TemporaryDirectory() as folder:
        stream = cache_locally([stream], folder, whole=False)[0]
        opened = stream.open()
        index = opened.index
        files = without_scan_files(index)
        raw, stored = files.raw_shard_bytes, files.stored_shard_bytes
        shards = _select_shards(
            index, stored, max(samples, measured), fetched=stream.cache is not None
        )
        preview_ids = _spread(index, shards, samples)
        groups = [*_groups(index, shards, preview_ids, measured)]
        sampler = ColumnSampler(
            Values(stream, index, allow_unsafe_types=allow_unsafe_types),
            index,
            preview_ids=frozenset(preview_ids.tolist()),
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
            set=describe(opened.shown_url, index),
            cells=tuple(_cells(index, raw, stored)),
            shard_samples=make_histogram(index.samples),
            shard_raw=make_histogram(raw),
            shard_stored=make_histogram(stored),
            columns=tuple(sampler.column(name) for name in columns),
            samples=tuple(sorted(sampler.sample_previews.items())),
            seen=sampler.count,
            seen_shards=sampler.shards,
            sample_bytes=make_histogram(sampler.bytes),
            failures=tuple(sampler.failures),
        )


def _cells(index: Index, raw: Int64, stored: Int64) -> Iterator[ShardGroup]:
    count = len(index)
    if not count:
        return
    firsts = np.unique(
        np.linspace(0, count, min(count, _MAX_GROUPS), endpoint=False).astype(np.int64)
    )
    shards = np.diff(firsts, append=count)
    sums = [np.add.reduceat(column, firsts).tolist() for column in (index.samples, raw, stored)]
    names = [raw_files.basenames for raw_files, _ in index.file_tables]
    for n, first in enumerate(firsts.tolist()):
        name = next((name for column in names if (name := column[first])), "")
        samples, raw_bytes, stored_bytes = (column[n] for column in sums)
        packed = index.schema(first).compression
        yield ShardGroup(first, int(shards[n]), name, samples, raw_bytes, stored_bytes, packed)


# -- samples ------------------------------------------------------------------------------


def _select_shards(index: Index, stored: Int64, samples: int, *, fetched: bool) -> Int64:
    """Return the shards to read about a number of samples from, spread over the data set."""
    shards: Int64 = np.flatnonzero(index.samples)
    wanted = (
        max(-(-samples * len(shards) // max(index.size, 1)), _MIN_DOWNLOADED_SHARDS)
        if fetched
        else _MAX_SHARDS
    )
    max_shards = min(wanted, _MAX_SHARDS, samples, len(shards))
    shards = shards[np.unique(np.linspace(0, len(shards) - 1, max_shards).astype(np.int64))]
    if fetched:
        is_first = np.arange(len(shards)) == 0
        shards = shards[(np.cumsum(stored[shards]) <= _MAX_DOWNLOADED_BYTES) | is_first]
    return shards


def _spread(index: Index, shards: Int64, count: int) -> Int64:
    """Return samples at equal distances in shards, the first one included."""
    samples = index.samples[shards].astype(np.int64)
    ends = np.cumsum(samples)
    count = min(count, int(samples.sum()))
    places = np.arange(count, dtype=np.int64) * int(samples.sum()) // max(count, 1)
    at = np.searchsorted(ends, places, side="right")
    ids: Int64 = np.asarray(index.starts)[shards[at]] + places - (ends - samples)[at]
    return ids


def _groups(
    index: Index, shards: Int64, preview_ids: Int64, measured: int
) -> Iterator[tuple[int, Int64]]:
    """Yield shards, and the samples to read of each."""
    samples_per_shard = -(-measured // max(len(shards), 1))
    ids = [preview_ids]
    for shard in shards.tolist():
        start, stop = index.starts[shard : shard + 2].tolist()
        ids.append(
            np.unique(
                np.linspace(start, stop - 1, min(samples_per_shard, stop - start)).astype(np.int64)
            )
        )
    chosen = np.unique(np.concatenate(ids))
    of = np.searchsorted(np.asarray(index.starts), chosen, side="right") - 1
    for shard in np.unique(of).tolist():
        yield shard, chosen[of == shard]
