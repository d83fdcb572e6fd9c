"""Accesses that read samples by range requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from streamplug import Stream
from streamplug.errors import ConfigError
from streamplug.read import OpenShards, StreamShards
from streamplug.source import Access, OpenStream
from streamplug_ranges.auto_shards import AutoShards
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.range_shards import RangeShards


class RangeAccess(Access):
    """``range``: only the bytes of the samples are read, and nothing is kept."""

    keeps_shards: ClassVar[bool] = False

    def check(self, stream: Stream) -> None:
        _refuse_hash(stream)

    def open_shards(self, stream: OpenStream, columns: Sequence[str] | None) -> RangeShards:
        return RangeShards(stream.index, RangeReader.of(stream.shard_files), columns)


class AutoAccess(Access):
    """``auto``: shards with few selected rows are read by ranges, the others as a whole."""

    def check(self, stream: Stream) -> None:
        _refuse_hash(stream)

    def open_shards(self, stream: OpenStream, columns: Sequence[str] | None) -> StreamShards:
        index, store = stream.index, stream.store
        shards = OpenShards(index, store, columns)
        if stream.selection is None or not store.fetches:
            return shards
        try:
            ranges = RangeShards(index, RangeReader.of(stream.shard_files), columns)
        except ConfigError:  # the shards can only be read as a whole
            return shards
        rows = np.diff(stream.selection.ranks(index.starts))
        return AutoShards(shards, ranges, store, index, rows)


def _refuse_hash(stream: Stream) -> None:
    if stream.validate_hash is not None:
        raise ConfigError(
            f"validate_hash={stream.validate_hash!r} with access={stream.access!r}: parts of a file have no "
            "digest; leave it out, or use access='shard'"
        )
