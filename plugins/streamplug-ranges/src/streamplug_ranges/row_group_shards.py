"""Reading of shards by their row groups, of which only the columns are fetched that are read."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from threading import Event, RLock
from typing import Any, ClassVar

from streamplug.errors import ConfigError, DataError, prefix_errors
from streamplug.index import Index, Schema
from streamplug.interfaces import ShardInfo
from streamplug.plugin_kit import Cancelled, check
from streamplug.read import (
    ColumnSelection,
    MappedFiles,
    OpenShard,
    PartialNeed,
    ShardFailures,
    StreamShards,
)
from streamplug.transfer import PrefetchLimits
from streamplug.types import Int64
from streamplug_ranges.held_ranges import HeldPart
from streamplug_ranges.range_failures import FILE_ERRORS
from streamplug_ranges.range_fetcher import RangeFetcher
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.range_shards import PREFETCH_LIMITS
from streamplug_ranges.row_groups import RowGroupFormat, RowGroupReader
from streamplug_ranges.shard_headers import MAX_CACHED_HEADER_BYTES
from streamplug_ranges.spans import total_bytes
from streamplug_ranges.versioned_file import VersionedFile

_CANCEL_POLL_SECONDS = 1.0


class _Opened:
    def __init__(
        self, shard: OpenShard, reader: RowGroupReader, file: VersionedFile, info: ShardInfo
    ) -> None:
        self.shard, self.reader, self.file, self.info = shard, reader, file, info
        self._byte_ranges: dict[int, Int64] = {}

    def byte_ranges(self, group: int) -> Int64:
        """Return the ranges of the selected columns of a row group, shape ``[n, 2]``."""
        ranges = self._byte_ranges.get(group)
        if ranges is None:
            ranges = self._byte_ranges[group] = self.reader.byte_ranges(group, self.shard.columns)
        return ranges

    def is_decoded(self, group: int) -> bool:
        """Return whether nothing has to be read of the file for the selected columns of a row group."""
        return self.reader.has_decoded(group, self.shard.columns)

    def missing_groups(self, rows: Int64) -> list[int]:
        """Return the row groups of rows that are neither held nor decoded."""
        groups = self.reader.groups_of(rows)
        return [g for g in groups if not self.file.holds(g) and not self.is_decoded(g)]


class _ProcessState:
    def __init__(self) -> None:
        self.pid = os.getpid()
        # Reentrant: garbage collection may end a loop, which releases needs, while this thread holds it.
        self.lock = RLock()
        self.opened: OrderedDict[int, _Opened] = OrderedDict()
        self.header_bytes = self.largest_header = 0
        self.opening: dict[int, Event] = {}


class RowGroupShards(StreamShards):
    """Reader of the shards of one stream by their row groups."""

    is_whole: ClassVar[bool] = False
    prefetch_limits: ClassVar[PrefetchLimits] = PREFETCH_LIMITS

    def __init__(self, index: Index, store: RangeReader, columns: Sequence[str] | None) -> None:
        """Read shards of formats with row groups; `columns` None selects all.

        Raises:
            ConfigError: If the shards cannot be read in this way.
        """
        self._index, self._store, self._names = index, store, columns
        self._selections = [ColumnSelection(schema, columns) for schema in index.schemas]
        self._failures = ShardFailures()
        self._process_state = _ProcessState()
        self._formats = [self._check(number) for number in range(len(index.schemas))]

    def _check(self, number: int) -> RowGroupFormat:
        """Return the format of a schema.

        Raises:
            ConfigError: If its shards cannot be read by row groups.
        """
        schema = self._index.schemas[number]
        if schema.compression is None and isinstance(schema.format, RowGroupFormat):
            return schema.format
        first = self._index.shard(int((self._index.schema_of == number).argmax()))
        raise ConfigError(
            f"access='range': {self._where(first)} {_why_whole(schema)}; pass access='shard'"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return RowGroupShards, (self._index, self._store, self._names)

    def get(self, shard: int) -> OpenShard:
        return self.open(shard).shard

    def if_open(self, shard: int) -> OpenShard | None:
        opened = self._state().opened.get(shard)
        return None if opened is None else opened.shard

    def info(self, shard: int) -> ShardInfo:
        opened = self._state().opened.get(shard)
        return self._index.shard(shard) if opened is None else opened.info

    def keep(self, shard: int, times: int) -> None:
        """Do nothing: an open shard holds no file."""

    def repair(self, shard: int, damaged: OpenShard, error: DataError) -> None:
        """Do nothing: there is no local copy that could differ from the remote file."""

    def remember_failures(self) -> None:
        self._failures.remember()

    def needs(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[PartialNeed]:
        return [RowGroupNeed(self, first + shard, shard, of_shard) for shard, of_shard in rows]

    def missing(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[PartialNeed]:
        return self.needs(first, [found for found in rows if not self._is_decoded(*found)])

    def start_fetching(self, needs: Sequence[PartialNeed]) -> RangeFetcher:
        return RangeFetcher(needs)

    def _is_decoded(self, shard: int, rows: Int64) -> bool:
        opened = self._state().opened.get(shard)
        return opened is not None and all(map(opened.is_decoded, opened.reader.groups_of(rows)))

    def weigh(self, shard: int, rows: Int64) -> int:
        """Return the bytes to fetch for rows of a shard; approximate before its header is read."""
        opened = self._state().opened.get(shard)
        if opened is not None:
            return sum(map(total_bytes, map(opened.byte_ranges, opened.missing_groups(rows))))
        selection = self._selections[self._index.schema_of[shard]]
        columns = len(self._index.schema(shard).columns)
        return self._index.shard(shard).raw_bytes * len(selection.columns) // max(columns, 1)

    def measure(self, shard: int) -> tuple[int, int]:
        """Return the bytes of a shard's header and selected columns, and the number of its row groups.

        Raises:
            StreamplugError: If the header cannot be fetched, or is damaged.
        """
        opened = self.open(shard)
        count = opened.reader.num_groups
        stored = sum(map(total_bytes, map(opened.byte_ranges, range(count))))
        return opened.reader.header_bytes + stored, count

    def hold(self, shard: int, rows: Int64) -> tuple[VersionedFile, list[HeldPart]]:
        """Hold the row groups of rows of a shard, fetching at once what is neither held nor decoded."""
        opened = self.open(shard)
        with prefix_errors(opened.shard.where, DataError):
            # Those that are held stay so, also if they are decoded, which may be evicted meanwhile.
            wanted = {
                group: opened.byte_ranges(group)
                for group in opened.reader.groups_of(rows)
                if opened.file.holds(group) or not opened.is_decoded(group)
            }
            return opened.file, opened.file.hold(wanted)

    def open(self, shard: int) -> _Opened:
        """Return an open shard, whose header is fetched once.

        Raises:
            StreamplugError: If it cannot be fetched, or is damaged.
        """
        state = self._state()
        while True:
            with state.lock:
                opened = state.opened.get(shard)
                if opened is not None:
                    state.opened.move_to_end(shard)
                    return opened
                by_other = state.opening.get(shard)
                if by_other is None:
                    ended = state.opening[shard] = Event()
                    break
            while not by_other.wait(_CANCEL_POLL_SECONDS):
                check()
        try:
            with self._failures.guard(shard):
                opened = self._open(shard)
            with state.lock:
                self._add(state, shard, opened)
        finally:
            del state.opening[shard]
            ended.set()
        return opened

    def _open(self, shard: int) -> _Opened:
        info, schema = self._index.shard(shard), self._index.schema(shard)
        where, format_ = self._where(info), self._formats[self._index.schema_of[shard]]
        raw = info.files["data"].raw
        if not self._store.serves_ranges(raw):
            raise ConfigError(
                f"access='range': {where}: its server sends whole files only; pass access='shard'"
            )
        largest = self._state().largest_header
        guard = partial(self._failures.guard, shard, FILE_ERRORS)
        file = VersionedFile(self._store, raw, largest, guard)
        try:
            reader = format_.open_row_groups(info, file, schema.columns)
        except DataError as error:
            raise type(error)(
                f"{where}: {error}; the file is damaged, write or copy it again"
            ) from error
        selection = self._selections[self._index.schema_of[shard]]
        opened = OpenShard(reader, selection, where, MappedFiles({}, {}))
        return _Opened(opened, reader, file, info)

    def _add(self, state: _ProcessState, shard: int, opened: _Opened) -> None:
        state.opened[shard] = opened
        state.header_bytes += opened.reader.header_bytes
        state.largest_header = max(state.largest_header, opened.reader.header_bytes)
        while state.header_bytes > MAX_CACHED_HEADER_BYTES and len(state.opened) > 1:
            _, oldest = state.opened.popitem(last=False)
            state.header_bytes -= oldest.reader.header_bytes

    def _where(self, info: ShardInfo) -> str:
        files = ((file.zip or file.raw).basename for file in info.files.values())
        return f"shard {info.number} ({', '.join(map(self._store.storage.url_of, files))})"

    def _state(self) -> _ProcessState:
        # In a forked copy, another thread may have held one of the locks.
        if self._process_state.pid != os.getpid():
            self._process_state = _ProcessState()
        return self._process_state


class RowGroupNeed(PartialNeed):
    """The row groups of some rows of one shard."""

    def __init__(self, shards: RowGroupShards, number: int, shard: int, rows: Int64) -> None:
        self._of_stream, self._shard, self._rows = shards, shard, rows
        self.shards = (number,)
        self.weight = shards.weigh(shard, rows)
        self._held: tuple[VersionedFile, list[HeldPart]] | None = None

    def ensure(self) -> None:
        self._held = self._of_stream.hold(self._shard, self._rows)
        try:
            check()
        except Cancelled:
            # The loop may have ended, and released all needs, before this one held anything.
            self.release()
            raise

    def release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            file, parts = held
            file.release(parts)


def _why_whole(schema: Schema) -> str:
    if schema.compression is not None:
        return f"is compressed ({schema.compression})"
    name = schema.entry.get("format", type(schema.format).__name__)
    return f"has a format, {name!r}, that is not read by row groups, unlike others of the data set"
