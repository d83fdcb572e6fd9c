"""Reads samples by fetching their bytes alone, rather than their shards."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.index import Index
from streamplug.interfaces import (
    Column,
    MultiFileFormat,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
)
from streamplug.plugin_kit.cancellation import Cancelled, check
from streamplug.read.mapped import MappedFiles
from streamplug.read.open_shards import ColumnSelection, OpenShard
from streamplug.read.sample_range import FetchGroup, SampleRange
from streamplug.read.shard_headers import GAP, NO_ROWS, Naming, ShardHeaders, unnamed
from streamplug.read.speculative_read import SpeculativeRead
from streamplug.transfer.disk_errors import errors_of
from streamplug.transfer.range_reader import RangeStore
from streamplug.transfer.ranges import CutShortError
from streamplug.transfer.spans import coalesced
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample

_KNOWN = 1024
"""Shards of which is kept what the index says."""


class _Memory:
    """What one process holds: heads that were read, and pieces about to be."""

    def __init__(self, heads: ShardHeaders) -> None:
        self.pid = os.getpid()
        self.heads = heads
        self.lock = RLock()  # the collector may end a loop, which releases pieces, while it is held
        self.pieces: dict[int, list[SampleRange]] = {}
        self.known: dict[int, tuple[ShardInfo, str]] = {}


class RangeShards:
    """Reads the shards of one stream by ranges.

    Attributes:
        supports_read_many: Whether the bytes of several shards can be asked for at once.
    """

    def __init__(self, index: Index, store: RangeStore, columns: Sequence[str] | None) -> None:
        """Read the shards of `index`.

        Args:
            index: Describes them.
            store: Fetches parts of them.
            columns: Names of the columns to decode; None for all.

        Raises:
            ConfigError: If some are compressed, or of a format that cannot be read by ranges.
        """
        self._index = index
        self._store = store
        self.supports_read_many = store.supports_read_many
        self._memory = self._new_memory()
        self._wanted = [ColumnSelection(schema, columns) for schema in index.schemas]
        for number in range(len(index.schemas)):
            self._check(number)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memory = self._new_memory()

    def _new_memory(self) -> _Memory:
        return _Memory(ShardHeaders(self._index, self._store))

    def _check(self, number: int) -> None:
        """Check that the shards of one schema can be read by ranges."""
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
                f"fetch='range': {self._where(info)} {why}; {advice}, or pass fetch='shard'"
            )

    def get(self, shard: int) -> OpenShard:
        """Return a shard that fetches what is read of it."""
        info, where = self._known(shard)
        wanted = self._wanted[self._index.schema_of[shard]]
        return OpenShard(_RangeReader(self, info), wanted, where, MappedFiles({}, {}))

    def keep(self, shard: int, times: int) -> None:
        """Do nothing: an open shard holds nothing that could go."""

    def heal(self, shard: int, damaged: OpenShard, error: DataError) -> None:
        """Do nothing: no copy is kept that could be another than what lies far away."""

    def basename(self, shard: int) -> str:
        """Return the name of a shard's first raw file."""
        return next(iter(self._known(shard)[0].files.values())).raw.basename

    def nbytes(self, shard: int) -> int:
        """Return the bytes of a shard's raw files."""
        return sum(file.raw.bytes for file in self._known(shard)[0].files.values())

    def _known(self, shard: int) -> tuple[ShardInfo, str]:
        """Return what the index says of a shard, and what errors call that."""
        known = self._mine().known
        found = known.get(shard)
        if found is None:
            if len(known) >= _KNOWN:
                known.clear()
            info = self._index.shard(shard)
            found = known[shard] = info, self._where(info)
        return found

    def _where(self, info: ShardInfo) -> str:
        names = (self._store.storage.url_of((f.zip or f.raw).basename) for f in info.files.values())
        return f"shard {info.number} ({', '.join(names)})"

    # -- pieces -----------------------------------------------------------------------

    def piece(self, number: int, shard: int, rows: Int64) -> SampleRange:
        """Return a piece that is still to be fetched; `number` is the shard's over all streams."""
        samples = int(self._index.starts[shard + 1] - self._index.starts[shard])
        return SampleRange(number, shard, rows, len(rows) * self.nbytes(shard) // max(samples, 1))

    def missing(self, shard: int, rows: Int64) -> bool:
        """Say whether samples have to be fetched before they are read."""
        return self._find(shard, rows) is None

    def fetch(self, haul: FetchGroup) -> None:
        """Fetch some pieces, and keep them until they are released.

        Raises:
            StorageError: If one cannot be had.
            DataError: If what comes is damaged.
        """
        self._fill(haul, self._named)
        memory = self._mine()
        with memory.lock:
            for piece in haul:
                memory.pieces.setdefault(piece.shard, []).append(piece)
        try:
            check()
        except (
            Cancelled
        ):  # it may have come after the end of its loop, which has released the others
            for piece in haul:
                self.release(piece)
            raise

    def prepare(self, haul: FetchGroup) -> None:
        """Fetch the heads of the shards of some pieces, but for those that come with samples.

        Raises:
            StorageError: If one cannot be had.
            DataError: If one is damaged.
        """
        heads = self._mine().heads
        infos = [(self._known(piece.shard)[0], piece.rows) for piece in haul]
        alone = [info for info, rows in infos if not heads.comes_with_samples(info, rows)]
        heads.of([(info, NO_ROWS) for info in alone], self._named)

    def _named(self, info: ShardInfo) -> AbstractContextManager[None]:
        return errors_of(self._known(info.number)[1])

    def release(self, piece: SampleRange) -> None:
        """Forget a piece."""
        memory = self._mine()
        with memory.lock:
            kept = [other for other in memory.pieces.get(piece.shard, ()) if other is not piece]
            if kept:
                memory.pieces[piece.shard] = kept
            else:
                memory.pieces.pop(piece.shard, None)

    def take(self, info: ShardInfo, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        """Decode samples of a shard, fetching them if need be; as `ShardReader.take`."""
        found = self._find(info.number, rows)
        if found is None:
            piece = self.piece(0, info.number, rows)
            self._fill((piece,), unnamed)
            found = piece, np.searchsorted(piece.rows, rows)
        piece, places = found
        [(head, _)] = self._mine().heads.of([(info, NO_ROWS)])
        return head.take(rows, piece.data, piece.starts[places], columns)

    def _find(self, shard: int, rows: Int64) -> tuple[SampleRange, Int64] | None:
        memory = self._mine()
        with memory.lock:
            pieces = list(memory.pieces.get(shard, ()))
        for piece in pieces:
            places = piece.places(rows)
            if places is not None:
                return piece, places
        return None

    def _fill(self, haul: FetchGroup, naming: Naming) -> None:
        """Fetch the bytes of pieces."""
        wanted = [(self._known(piece.shard)[0], piece) for piece in haul if len(piece.rows)]
        heads = self._mine().heads.of([(info, piece.rows) for info, piece in wanted], naming)
        missing = []
        for (info, piece), (head, early) in zip(wanted, heads):
            with naming(info):
                left = self._taken_early(info, piece, head, early)
            if left.spans.size:
                missing.append((info, piece, left))
        files = [(info.files["data"].raw, left.spans) for info, _, left in missing]
        for place, parts in self._store.read_many(files):
            info, piece, left = missing[place]
            with naming(info):
                piece.add(left.some, left.ranges, left.spans, _parts(parts, piece, left))

    def _taken_early(
        self, info: ShardInfo, piece: SampleRange, head: ShardHeader, early: SpeculativeRead
    ) -> _Left:
        """Take what came with the head of a piece's shard; return what is still to be had."""
        ranges = head.byte_ranges(piece.rows)
        self._check_bounds(piece, ranges, info.files["data"].raw.bytes)
        missing = ranges[:, 0] < ranges[:, 1]  # a sample without bytes is there
        if len(early.spans):
            here = early.has(ranges)
            self._mine().heads.judge(early, float(here.mean()))
            if (some := here & missing).any():
                spans = coalesced(ranges[some], 0)
                piece.add(some, ranges[some], spans, early.cut(spans))
            missing &= ~here
        apart = isinstance(self._index.schema(piece.shard).format, MultiFileFormat)
        ranges = ranges[missing]
        spans = coalesced(ranges, 0 if apart else GAP) if len(ranges) else ranges
        return _Left(missing, ranges, spans)

    def _check_bounds(self, piece: SampleRange, ranges: Int64, size: int) -> None:
        wrong = (ranges[:, 0] < 0) | (ranges[:, 1] < ranges[:, 0]) | (ranges[:, 1] > size)
        if wrong.any():
            at = int(wrong.argmax())
            raise CorruptShardError(
                f"sample {piece.rows[at]}: it lies at bytes {ranges[at, 0]} to {ranges[at, 1]} of a file "
                f"of {size}; the file is damaged, write or copy it again"
            )

    def _mine(self) -> _Memory:
        # A fork's copy may have been made while another thread held a lock of it.
        if self._memory.pid != os.getpid():
            self._memory = self._new_memory()
        return self._memory


class _Left(NamedTuple):
    """What of a piece did not come with the head of its shard.

    Attributes:
        some: Which of its rows, shape ``[rows]``.
        ranges: Where in the file they lie, shape ``[n, 2]``.
        spans: What to ask for, shape ``[m, 2]``.
    """

    some: NDArray[np.bool_]
    ranges: Int64
    spans: Int64


def _parts(parts: Callable[[], list[Bytes1D]], piece: SampleRange, left: _Left) -> list[Bytes1D]:
    try:
        return parts()
    except CutShortError as error:
        row = int(piece.rows[left.some][(left.ranges[:, 1] > error.at).argmax()])
        raise CorruptShardError(f"sample {row}: {error}") from error


class _RangeReader(ShardReader):
    """Reads one shard."""

    def __init__(self, shards: RangeShards, info: ShardInfo) -> None:
        self._shards, self._info = shards, info

    def __len__(self) -> int:
        return self._info.samples

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        values = self.take(np.array([index], np.int64), columns)
        split = zip(columns, values)
        return {column.name: column.encoding.unbatch(found)[0] for column, found in split}

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return self._shards.take(self._info, rows, columns)
