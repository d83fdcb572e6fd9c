"""Reading of samples by range requests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import RLock
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, CorruptShardError, DataError, prefix_errors
from streamplug.index import Index
from streamplug.interfaces import (
    Column,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.plugin_kit import Cancelled, check
from streamplug.read import ColumnSelection, MappedFiles, OpenShard, PartialNeed, StreamShards
from streamplug.transfer import PrefetchLimits, TruncatedFileError
from streamplug.types import ColumnValues, Int64
from streamplug_ranges.range_buffer import RangeBuffer
from streamplug_ranges.range_failures import FILE_ERRORS, RangeFailures
from streamplug_ranges.range_fetcher import RangeFetcher
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.sample_range import SampleRange, group_ranges
from streamplug_ranges.shard_headers import MAX_GAP_BYTES, NO_ROWS, ErrorContext, ShardHeaders
from streamplug_ranges.spans import coalesce_ranges

PREFETCH_LIMITS = PrefetchLimits(
    bytes=64 << 20, strict=True, max_running=16, bytes_in_flight=8 << 20
)
"""Sample ranges are held in memory and mostly small: more requests in flight, fewer bytes ahead."""
_MAX_CACHED_INFOS = 1024  # maximum number of cached index entries


class _ProcessState:
    def __init__(self, headers: ShardHeaders) -> None:
        self.pid = os.getpid()
        self.headers = headers
        # Reentrant: garbage collection may end a loop, which releases ranges, while this thread holds it.
        self.lock = RLock()
        self.ranges: dict[int, list[SampleRange]] = {}
        self.infos: dict[int, tuple[ShardInfo, str]] = {}


class RangeShards(StreamShards):
    """Reader of the shards of one stream by range requests."""

    is_whole: ClassVar[bool] = False
    prefetch_limits: ClassVar[PrefetchLimits] = PREFETCH_LIMITS

    def __init__(self, index: Index, store: RangeReader, columns: Sequence[str] | None) -> None:
        """Check that the shards of `index` support range access; `columns` None selects all."""
        self._index, self._store, self._names = index, store, columns
        self.failures = RangeFailures()
        self._process_state = self._new_state()
        self._selections = [ColumnSelection(schema, columns) for schema in index.schemas]
        self._partial = [any(c.encoding.partial for c in s.columns) for s in self._selections]
        for number in range(len(index.schemas)):
            self._check(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return RangeShards, (self._index, self._store, self._names)

    def _new_state(self) -> _ProcessState:
        return _ProcessState(ShardHeaders(self._index, self._store))

    def _check(self, number: int) -> None:
        schema = self._index.schemas[number]
        for shard in np.flatnonzero(self._index.schema_of == number)[:1]:
            info = self._index.shard(int(shard))
            format_ = schema.format
            by_range = format_ if isinstance(format_, RangeReadableFormat) else None
            needed = {"data", by_range.header_role if by_range else "data"}
            if schema.compression is not None or not needed <= info.files.keys():
                why = f"is compressed ({schema.compression})"
                advice = "write the data set without compression"
            elif by_range is None or by_range.header_range(info) is None:
                why = f"has a format, {schema.entry.get('format', type(schema.format).__name__)!r}, that can be read only as a whole"  # noqa: E501
                advice = "write the data set in another format, such as mds"
            else:
                continue
            raise ConfigError(
                f"access='range': {self._where(info)} {why}; {advice}, or pass access='shard'"
            )

    def get(self, shard: int) -> OpenShard:
        """Return a shard that fetches the samples that are read of it."""
        info, where = self._info(shard)
        selection = self._selections[self._index.schema_of[shard]]
        return OpenShard(_RangeReader(self, info), selection, where, MappedFiles({}, {}))

    def if_open(self, shard: int) -> OpenShard:
        """Return a shard: opening one fetches nothing."""
        return self.get(shard)

    def name_sample(self, info: ShardInfo, row: int) -> str | None:
        """Return the name of a sample for errors, unless it would have to be fetched."""
        header = self._state().headers.if_cached(info.number)
        return None if header is None or header.name_of is None else header.name_of(row)

    def keep(self, shard: int, times: int) -> None:
        """Do nothing: an open shard holds no resources."""

    def repair(self, shard: int, damaged: OpenShard, error: DataError) -> None:
        """Do nothing: there is no local copy that could differ from the remote file."""

    def remember_failures(self) -> None:
        """Raise errors of shards again; see `StreamShards`."""
        self.failures.remember()

    def info(self, shard: int) -> ShardInfo:
        """Return the metadata of a shard."""
        return self._info(shard)[0]

    def _info(self, shard: int) -> tuple[ShardInfo, str]:
        infos = self._state().infos
        cached = infos.get(shard)
        if cached is None:
            if len(infos) >= _MAX_CACHED_INFOS:
                infos.clear()
            info = self._index.shard(shard)
            cached = infos[shard] = info, self._where(info)
        return cached

    def _where(self, info: ShardInfo) -> str:
        names = (self._store.storage.url_of((f.zip or f.raw).basename) for f in info.files.values())
        return f"shard {info.number} ({', '.join(names)})"

    def new_range(self, number: int, shard: int, rows: Int64) -> SampleRange:
        """Return a sample range that is not fetched yet; `number` counts the shards of all streams."""
        samples = int(self._index.starts[shard + 1] - self._index.starts[shard])
        return SampleRange(
            number, shard, rows, len(rows) * self.info(shard).raw_bytes // max(samples, 1)
        )

    def needs(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[PartialNeed]:
        """Return sample ranges to fetch, in groups if the storage reads several files at once."""
        ranges = [self.new_range(first + shard, shard, of_shard) for shard, of_shard in rows]
        groups: Sequence[Sequence[SampleRange]] = [(r,) for r in ranges]
        if self._store.supports_read_many:
            groups = group_ranges(ranges, self._store.storage.parts_per_call)
        return [FetchGroup(self, group) for group in groups]

    def missing(self, first: int, rows: Sequence[tuple[int, Int64]]) -> list[PartialNeed]:
        """Return the needs of rows that are not held."""
        return self.needs(first, [found for found in rows if self._find(*found) is None])

    def start_fetching(self, needs: Sequence[PartialNeed]) -> RangeFetcher:
        """Start fetching, in the order of the needs."""
        return RangeFetcher(needs)

    def fetch(self, group: Sequence[SampleRange]) -> None:
        """Fetch a group of sample ranges, and hold them until they are released."""
        group = [part for part in group if part.shard not in self.failures] or group
        self._fill(group, self._error_context)
        state = self._state()
        with state.lock:
            for sample_range in group:
                state.ranges.setdefault(sample_range.shard, []).append(sample_range)
        try:
            check()
        except Cancelled:
            # The loop may have ended, and released all ranges, before this group was added.
            for sample_range in group:
                self.release(sample_range)
            raise

    @contextmanager
    def _guard(self, error_context: ErrorContext, info: ShardInfo) -> Iterator[None]:
        with error_context(info), self.failures.guard(info.number, FILE_ERRORS):
            yield

    def _error_context(self, info: ShardInfo) -> AbstractContextManager[None]:
        return prefix_errors(self._info(info.number)[1], DataError)

    def release(self, released: SampleRange) -> None:
        """Free a sample range."""
        state = self._state()
        with state.lock:
            ranges = state.ranges.pop(released.shard, [])
            if remaining := [part for part in ranges if part is not released]:
                state.ranges[released.shard] = remaining

    def take(self, info: ShardInfo, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        """Decode samples of a shard as `ShardReader.take`, fetching them if necessary."""
        if self._partial[self._index.schema_of[info.number]]:
            [(header, _)] = self._state().headers.get_many([(info, NO_ROWS)])
            if header.reads_parts:
                buffer: Any = RangeBuffer(self._store, info.files["data"].raw)
                return header.take(rows, buffer, header.byte_ranges(rows)[:, 0], columns)
        located = self._find(info.number, rows)
        if located is None:
            fetched = self.new_range(0, info.number, rows)
            self._fill((fetched,), nullcontext)
            located = fetched, np.searchsorted(fetched.rows, rows)
        sample_range, places = located
        [(header, _)] = self._state().headers.get_many([(info, NO_ROWS)])
        return header.take(rows, sample_range.data, sample_range.starts[places], columns)

    def _find(self, shard: int, rows: Int64) -> tuple[SampleRange, Int64] | None:
        state = self._state()
        with state.lock:
            ranges = list(state.ranges.get(shard, ()))
        for sample_range in ranges:
            places = sample_range.find(rows)
            if places is not None:
                return sample_range, places
        return None

    def _fill(self, group: Sequence[SampleRange], error_context: ErrorContext) -> None:
        if self.failures.enabled:
            error_context = partial(self._guard, error_context)
        requests = [(self.info(part.shard), part) for part in group if len(part.rows)]
        rows = [(info, sample_range.rows) for info, sample_range in requests]
        headers = self._state().headers.get_many(rows, error_context)
        missing = []
        for (info, sample_range), (header, read) in zip(requests, headers):
            if header.reads_parts and self._partial[self._index.schema_of[info.number]]:
                continue  # `take` fetches what the encodings read
            with error_context(info):
                request = self._request(info, sample_range, header)
                if not len(request.ranges):
                    continue
                if read is not None and read.contains(request.ranges).all():
                    request = request._replace(spans=coalesce_ranges(request.ranges, 0))
                    sample_range.set_bytes(*request, read.copy_ranges(request.spans))
                else:
                    missing.append((info, sample_range, request))
        files = [(info.files["data"].raw, request.spans) for info, _, request in missing]
        for place, load_parts in self._store.read_many(files):
            info, sample_range, request = missing[place]
            with error_context(info):
                try:
                    parts = load_parts()
                except TruncatedFileError as error:
                    self.failures.set_end(info.number, error.at)
                    is_cut = request.ranges[:, 1] > error.at
                    row = int(sample_range.rows[request.is_stored][is_cut.argmax()])
                    raise CorruptShardError(f"sample {row}: {error}") from error
                sample_range.set_bytes(*request, parts)

    def _request(
        self, info: ShardInfo, sample_range: SampleRange, header: ShardHeader
    ) -> _SampleRequest:
        ranges = header.byte_ranges(sample_range.rows)
        size = self.failures.end_of(info.number, info.files["data"].raw.bytes)
        _check_bounds(sample_range, ranges, size)
        is_stored = ranges[:, 0] < ranges[:, 1]
        ranges = ranges[is_stored]
        is_composed = self._index.schema(info.number).format.is_composed
        gap = 0 if is_composed else MAX_GAP_BYTES
        return _SampleRequest(is_stored, ranges, coalesce_ranges(ranges, gap))

    def _state(self) -> _ProcessState:
        # In a forked copy, another thread may have held one of the locks.
        if self._process_state.pid != os.getpid():
            self._process_state = self._new_state()
        return self._process_state


class FetchGroup(PartialNeed):
    """Sample ranges of different shards of one stream, fetched together."""

    def __init__(self, of_stream: RangeShards, parts: Sequence[SampleRange]) -> None:
        self._of_stream, self.parts = of_stream, parts
        self.shards = [part.number for part in parts]
        self.weight = sum(part.weight for part in parts)

    def ensure(self) -> None:
        self._of_stream.fetch(self.parts)

    def release(self) -> None:
        for part in self.parts:
            self._of_stream.release(part)


class _SampleRequest(NamedTuple):
    """The bytes to read for a sample range."""

    is_stored: NDArray[np.bool_]  # mask of its rows with any bytes, shape [rows]
    ranges: Int64  # byte ranges of these rows in the file, shape [n, 2]
    spans: Int64  # byte ranges to read, shape [m, 2]


def _check_bounds(checked: SampleRange, ranges: Int64, size: int) -> None:
    wrong = (ranges[:, 0] < 0) | (ranges[:, 1] < ranges[:, 0]) | (ranges[:, 1] > size)
    if wrong.any():
        at = int(wrong.argmax())
        raise CorruptShardError(
            f"sample {checked.rows[at]}: it lies at bytes {ranges[at, 0]} to {ranges[at, 1]} of a file "
            f"of {size}; the file is damaged, write or copy it again"
        )


class _RangeReader(ShardReader):
    def __init__(self, shards: RangeShards, info: ShardInfo) -> None:
        self._shards, self._info = shards, info

    def __len__(self) -> int:
        return self._info.samples

    @property
    def name_of(self) -> Callable[[int], str | None]:
        return partial(self._shards.name_sample, self._info)

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return self._shards.take(self._info, rows, columns)
