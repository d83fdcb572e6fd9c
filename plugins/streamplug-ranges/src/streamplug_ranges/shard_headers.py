"""Cache of shard headers, and samples that are read speculatively with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event, RLock
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import CorruptShardError, DataError
from streamplug.index import Index
from streamplug.interfaces import RangeReadableFormat, ShardHeader, ShardInfo
from streamplug.plugin_kit import check
from streamplug.transfer import TruncatedFileError
from streamplug.types import Bytes1D, Int64
from streamplug_ranges.range_reader import RangeReader
from streamplug_ranges.spans import coalesce_ranges, locate_ranges

MAX_GAP_BYTES = 32 << 10  # maximum gap between ranges that are coalesced into one request
MAX_CACHED_HEADER_BYTES = 64 << 20

_CANCEL_POLL_SECONDS = 1.0

NO_ROWS = np.empty(0, np.int64)

ErrorContext: TypeAlias = Callable[[ShardInfo], AbstractContextManager[Any]]
"""Context manager that names a shard in errors."""

_Request: TypeAlias = "tuple[ShardInfo, Int64]"


class SpeculativeRead(NamedTuple):
    """Bytes of a shard that were read in the same request as its header.

    Attributes:
        spans: Byte ranges in the file, shape ``[n, 2]``; ascending and disjoint.
        parts: The bytes of each span.
    """

    spans: Int64
    parts: Sequence[Bytes1D]

    def contains(self, ranges: Int64) -> NDArray[np.bool_]:
        """Return whether each range of the file, shape ``[n, 2]``, was read."""
        return locate_ranges(ranges, self.spans)[0] >= 0

    def copy_ranges(self, ranges: Int64) -> list[Bytes1D]:
        """Return the bytes of ranges that were read."""
        parts, offsets = locate_ranges(ranges, self.spans)
        sizes = (ranges[:, 1] - ranges[:, 0]).tolist()
        # Copies, so that the bytes around them can be freed.
        return [
            self.parts[part]
            if size == len(self.parts[part])
            else self.parts[part][at : at + size].copy()
            for part, at, size in zip(parts.tolist(), offsets.tolist(), sizes)
        ]


class _HeaderRequest(NamedTuple):
    """The byte ranges to read for a missing header."""

    info: ShardInfo
    role: str  # role of the file that contains the header
    header: Int64  # byte range of the header, shape [1, 2]
    spans: Int64  # byte ranges to read, shape [n, 2]


class ShardHeaders:
    """LRU cache of the headers of the shards of one stream, in one process."""

    def __init__(self, index: Index, store: RangeReader) -> None:
        self._index, self._store = index, store
        # Reentrant: garbage collection may end a loop, which requests headers, while this thread holds it.
        self._lock = RLock()
        self._cached: OrderedDict[int, tuple[ShardHeader, int]] = OrderedDict()
        self._cached_bytes = 0
        self._in_flight: dict[int, Event] = {}

    def if_cached(self, shard: int) -> ShardHeader | None:
        """Return the header of a shard if it is cached, else None."""
        with self._lock:
            return self._cached.get(shard, (None,))[0]

    def get_many(
        self, requests: Sequence[_Request], error_context: ErrorContext = nullcontext
    ) -> list[tuple[ShardHeader, SpeculativeRead | None]]:
        """Return headers of distinct shards, each with the bytes of the given rows that were read with it."""
        results: dict[int, tuple[ShardHeader, SpeculativeRead | None]] = {}
        while len(results) < len(requests):
            missing: list[_Request] = []
            try:
                others = self._claim(requests, results, missing)
                if missing:
                    self._fetch(missing, results, error_context)
                elif others:  # another thread is fetching it
                    while not others[0].wait(_CANCEL_POLL_SECONDS):
                        check()
            finally:
                self._unclaim(info.number for info, _ in missing)
        return [results[info.number] for info, _ in requests]

    def _claim(
        self,
        requests: Sequence[_Request],
        results: dict[int, tuple[ShardHeader, SpeculativeRead | None]],
        missing: list[_Request],
    ) -> list[Event]:
        """Take cached headers, claim those that no thread fetches, and return the events of the others."""
        others = []
        with self._lock:
            for info, rows in requests:
                number = info.number
                if number in results:
                    continue
                if number in self._cached:
                    self._cached.move_to_end(number)
                    results[number] = self._cached[number][0], None
                elif number in self._in_flight:
                    others.append(self._in_flight[number])
                else:
                    missing.append((info, rows))
                    self._in_flight[number] = Event()
        return others

    def _unclaim(self, shards: Iterable[int]) -> None:
        with self._lock:
            for number in shards:
                if number in self._in_flight:
                    self._in_flight.pop(number).set()

    def _fetch(
        self,
        missing: Sequence[_Request],
        results: dict[int, tuple[ShardHeader, SpeculativeRead | None]],
        error_context: ErrorContext,
    ) -> None:
        requests = []
        for info, rows in missing:
            with error_context(info):
                requests.append(self._request(info, rows))
        files = [(request.info.files[request.role].raw, request.spans) for request in requests]
        for place, load_parts in self._store.read_many(files):
            request = requests[place]
            number = request.info.number
            with error_context(request.info):
                read = self._receive(request, load_parts)
                header = self._open(request.info, read, request)
            results[number] = header, read if request.role == "data" else None
            self._unclaim([number])

    def _request(self, info: ShardInfo, rows: Int64) -> _HeaderRequest:
        format_ = self._format(info)
        header_range = format_.header_range(info)
        if header_range is None:
            raise CorruptShardError("its format needs the whole file; pass access='shard'")
        header = np.array([header_range], np.int64)
        spans, estimate = header, self._estimate(info, rows)
        if estimate is not None:
            spans = coalesce_ranges(np.concatenate([header, estimate]), MAX_GAP_BYTES)
        return _HeaderRequest(info, format_.header_role, header, spans)

    def _receive(
        self, request: _HeaderRequest, load_parts: Callable[[], list[Bytes1D]]
    ) -> SpeculativeRead:
        try:
            return SpeculativeRead(request.spans, load_parts())
        except TruncatedFileError:
            if request.spans is request.header:
                raise
        # The header alone may be intact, or tell what is wrong.
        file = request.info.files[request.role].raw
        return SpeculativeRead(request.header, self._store.read(file, request.header))

    def _open(self, info: ShardInfo, read: SpeculativeRead, request: _HeaderRequest) -> ShardHeader:
        schema = self._index.schema(info.number)
        [data] = read.copy_ranges(request.header)
        try:
            header = self._format(info).open_header(info, data, schema.columns)
        except DataError as error:
            raise type(error)(f"{error}; the file is damaged, write or copy it again") from error
        with self._lock:
            self._cached[info.number] = header, len(data)
            self._cached_bytes += len(data)
            while self._cached_bytes > MAX_CACHED_HEADER_BYTES and len(self._cached) > 1:
                self._cached_bytes -= self._cached.popitem(last=False)[1][1]
        return header

    def _format(self, info: ShardInfo) -> RangeReadableFormat:
        format_ = self._index.schema(info.number).format
        if not isinstance(format_, RangeReadableFormat):
            raise CorruptShardError("its format needs the whole file; pass access='shard'")
        return format_

    def _estimate(self, info: ShardInfo, rows: Int64) -> Int64 | None:
        """Return the estimated byte ranges of samples, shape ``[n, 2]``; None without an estimate."""
        format_ = self._format(info)
        if format_.header_role != "data" or not len(rows):
            return None
        size = info.files["data"].raw.bytes
        if size <= MAX_GAP_BYTES:  # a second request would take longer than the whole file
            return np.array([[0, size]], np.int64)
        columns = self._index.schema(info.number).columns
        estimate = format_.estimate_ranges(info, rows, columns)
        if estimate is None:
            return None
        estimate = np.clip(estimate, 0, size)
        return estimate[estimate[:, 0] < estimate[:, 1]]
