"""Accesses that read samples by range requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from streamplug import Stream
from streamplug.errors import ConfigError, StreamplugError
from streamplug.index import Index
from streamplug.read import OpenShards, StreamShards
from streamplug.source import Access, OpenStream
from streamplug_ranges.auto_shards import AutoShards, row_groups_are_less, samples_are_less
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.range_shards import RangeShards
from streamplug_ranges.row_group_shards import RowGroupShards
from streamplug_ranges.row_groups import RowGroupFormat


class RangeAccess(Access):
    """``range``: only the bytes of the samples are read, and nothing is kept."""

    keeps_shards: ClassVar[bool] = False

    def check(self, stream: Stream) -> None:
        _refuse_hash(stream)

    def open_shards(self, stream: OpenStream, columns: Sequence[str] | None) -> StreamShards:
        index, reader = stream.index, RangeReader.of(stream.shard_files)
        if _has_row_groups(index):
            return RowGroupShards(index, reader, columns)
        return RangeShards(index, reader, columns)


class AutoAccess(Access):
    """``auto``: a shard of which few bytes are needed is read by ranges, others as a whole."""

    def check(self, stream: Stream) -> None:
        _refuse_hash(stream)

    def open_shards(self, stream: OpenStream, columns: Sequence[str] | None) -> StreamShards:
        index, store = stream.index, stream.store
        shards = OpenShards(index, store, columns)
        if not store.fetches:
            return shards
        reader, rows = RangeReader.of(stream.shard_files), index.samples
        if stream.selection is not None:
            rows = np.diff(stream.selection.ranks(index.starts))
        try:
            if _has_row_groups(index):
                is_all = columns is None and stream.selection is None
                if is_all or _keeps_files(stream.stream) or not rows.any():
                    return shards
                groups = RowGroupShards(index, reader, columns)
                is_less = row_groups_are_less(index, groups, rows)
                return AutoShards(shards, groups, store, rows, is_less=is_less)
            if stream.selection is None:
                return shards
            ranges = RangeShards(index, reader, columns)
        except StreamplugError:  # the shards can only be read as a whole, or not at all
            return shards
        return AutoShards(shards, ranges, store, rows, is_less=samples_are_less(index, rows))


def _has_row_groups(index: Index) -> bool:
    return any(isinstance(schema.format, RowGroupFormat) for schema in index.schemas)


def _keeps_files(stream: Stream) -> bool:
    """Return whether a stream names a cache, or its limit, and so wants to have whole files there."""
    return stream.local is not None or stream.cache_limit is not None


def _refuse_hash(stream: Stream) -> None:
    if stream.validate_hash is not None:
        raise ConfigError(
            f"validate_hash={stream.validate_hash!r} with access={stream.access!r}: parts of a file have no "
            "digest; leave it out, or use access='shard'"
        )
