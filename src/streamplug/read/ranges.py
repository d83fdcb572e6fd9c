"""Reads samples by fetching their bytes alone, rather than their shards."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock, RLock
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.fetch import RangeStore
from streamplug.fetch.files import errors_of
from streamplug.fetch.ranged import CutShortError
from streamplug.fetch.spans import coalesced
from streamplug.index import Index
from streamplug.index.columns import Same
from streamplug.interfaces import Column, ShardHead, ShardInfo, ShardReader
from streamplug.interfaces.cancel import Cancelled, check
from streamplug.read.early import Early
from streamplug.read.mapped import MappedFiles
from streamplug.read.pieces import Piece
from streamplug.read.shards import OpenShard, Wanted
from streamplug.types import Bytes1D, ColumnValues, FileInfo, Int64, Sample

GAP = 32 << 10
"""Bytes between two samples up to which they are asked for in one request."""

HEAD_BYTES = 64 << 20
"""Bytes of the heads of shards that are kept."""

_KNOWN = 1024
"""Shards of which is kept what the index says."""

_LOCKS = 64
_NO_ROWS = np.empty(0, np.int64)

_LUCK = 16
"""How many more guessed spans may be wrong than right before none are guessed."""

_GUESSED_BYTES = 1 << 20
"""Bytes up to which a guess is made: about what comes in the round trip that it saves if it is right."""


class _Memory:
    """What one process holds: heads that were read, and pieces about to be."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = RLock()  # the collector may end a loop, which releases pieces, while it is held
        self.pieces: dict[int, list[Piece]] = {}
        self.fetching = [Lock() for _ in range(_LOCKS)]
        self.luck = _LUCK
        self.known: dict[int, tuple[ShardInfo, str]] = {}
        self._heads: OrderedDict[int, tuple[ShardHead, int]] = OrderedDict()
        self._bytes = 0

    def head(self, shard: int) -> ShardHead | None:
        with self.lock:
            if shard not in self._heads:
                return None
            self._heads.move_to_end(shard)
            return self._heads[shard][0]

    def stake(self, spans: int) -> bool:
        """Say whether so many spans may be guessed, which `judge` must then be told of."""
        with self.lock:
            may = spans <= self.luck
            self.luck -= spans * may
            return may

    def judge(self, spans: int, right: float) -> None:
        """Note which share of a guess was right, so that little is guessed where most is wrong."""
        with self.lock:
            self.luck = min(self.luck + round(2 * spans * right), _LUCK)

    def keep_head(self, shard: int, head: ShardHead, size: int) -> None:
        with self.lock:
            self._heads[shard] = head, size
            self._bytes += size
            while self._bytes > HEAD_BYTES and len(self._heads) > 1:
                self._bytes -= self._heads.popitem(last=False)[1][1]


class RangeShards:
    """Reads the shards of one stream by ranges."""

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
        self._memory = _Memory()
        self._wanted = [Wanted(schema, columns) for schema in index.schemas]
        for number in range(len(index.schemas)):
            self._check(number)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_memory": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._memory = _Memory()

    def _check(self, number: int) -> None:
        """Check that the shards of one schema can be read by ranges."""
        schema, of = self._index.schemas[number], self._index.schema_of
        having = [0] if isinstance(of, Same) else np.flatnonzero(np.asarray(of) == number)[:1]
        for shard in having if len(self._index) else ():
            info = self._index.shard(int(shard))
            needed = {"data", schema.format.head_role}
            if schema.compression is not None or not needed <= info.files.keys():
                why = f"is compressed ({schema.compression})"
                advice = "write the data set without compression"
            elif schema.format.head_range(info) is None:
                why = f"has a format, {schema.entry.get('format', type(schema.format).__name__)!r}, that can be read only as a whole"  # noqa: E501
                advice = "write the data set in another format, such as mds"
            else:
                continue
            raise ConfigError(
                f"fetch='range': {self._where(info)} {why}; {advice}, or pass fetch='shard'"
            )

    def get(self, shard: int) -> OpenShard:
        """Return a shard that fetches what is read of it.

        Raises:
            InvalidIndexError: If the index says what cannot be true.
        """
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

    def piece(self, number: int, shard: int, rows: Int64) -> Piece:
        """Return a piece that is still to be fetched; `number` is the shard's over all streams."""
        samples = int(self._index.starts[shard + 1] - self._index.starts[shard])
        return Piece(number, shard, rows, len(rows) * self.nbytes(shard) // max(samples, 1))

    def missing(self, shard: int, rows: Int64) -> bool:
        """Say whether samples have to be fetched before they are read."""
        return self._find(shard, rows) is None

    def fetch(self, piece: Piece) -> None:
        """Fetch a piece, and keep it until it is released.

        Raises:
            StorageError: If it cannot be had.
            DataError: If what comes is damaged.
        """
        info, where = self._known(piece.shard)
        with errors_of(where):
            self._fill(piece, info)
        memory = self._mine()
        with memory.lock:
            memory.pieces.setdefault(piece.shard, []).append(piece)
        try:
            check()
        except (
            Cancelled
        ):  # it may have come after the end of its loop, which has released the others
            self.release(piece)
            raise

    def prepare(self, piece: Piece) -> None:
        """Fetch the head of a piece's shard, unless that comes with samples.

        Raises:
            StorageError: If it cannot be had.
            DataError: If it is damaged.
        """
        info, where = self._known(piece.shard)
        if self._guess(info, piece.rows) is None:
            with errors_of(where):
                self._head(info)

    def release(self, piece: Piece) -> None:
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
            self._fill(piece, info)
            found = piece, np.searchsorted(piece.rows, rows)
        piece, places = found
        return self._head(info)[0].take(rows, piece.data, piece.starts[places], columns)

    def _find(self, shard: int, rows: Int64) -> tuple[Piece, Int64] | None:
        memory = self._mine()
        with memory.lock:
            pieces = list(memory.pieces.get(shard, ()))
        for piece in pieces:
            places = piece.places(rows)
            if places is not None:
                return piece, places
        return None

    def _fill(self, piece: Piece, info: ShardInfo) -> None:
        if not len(piece.rows):
            return
        head, early = self._head(info, piece.rows)
        file = info.files["data"].raw
        ranges = head.byte_ranges(piece.rows)
        self._check_bounds(piece, ranges, file.bytes)
        missing = ranges[:, 0] < ranges[:, 1]  # a sample without bytes is there
        if len(early.spans):
            here = early.has(ranges)
            self._mine().judge(early.staked, float(here.mean()))
            if (some := here & missing).any():
                spans = coalesced(ranges[some], 0)
                piece.add(some, ranges[some], spans, early.cut(spans))
            missing &= ~here
        if missing.any():
            apart = self._index.schema(piece.shard).format.bundles
            ranges, rows = ranges[missing], piece.rows[missing]
            spans = coalesced(ranges, 0 if apart else GAP)
            piece.add(missing, ranges, spans, self._read_rows(file, rows, ranges, spans))

    def _read_rows(self, file: FileInfo, rows: Int64, ranges: Int64, spans: Int64) -> list[Bytes1D]:
        """Fetch spans of a file in which samples lie."""
        try:
            return self._store.read(file, spans)
        except CutShortError as error:
            row = int(rows[(ranges[:, 1] > error.at).argmax()])
            raise CorruptShardError(f"sample {row}: {error}") from error

    def _check_bounds(self, piece: Piece, ranges: Int64, size: int) -> None:
        wrong = (ranges[:, 0] < 0) | (ranges[:, 1] < ranges[:, 0]) | (ranges[:, 1] > size)
        if wrong.any():
            at = int(wrong.argmax())
            raise CorruptShardError(
                f"sample {piece.rows[at]}: it lies at bytes {ranges[at, 0]} to {ranges[at, 1]} of a file "
                f"of {size}; the file is damaged, write or copy it again"
            )

    def _head(self, info: ShardInfo, rows: Int64 = _NO_ROWS) -> tuple[ShardHead, Early]:
        """Return the head of a shard, and what came with it: it may be that of samples to be read."""
        memory = self._mine()
        head, early = memory.head(info.number), Early()
        if head is None:
            with memory.fetching[info.number % _LOCKS]:  # what several threads need, one fetches
                head = memory.head(info.number)
                if head is None:
                    head, size, early = self._read_head(info, rows)
                    memory.keep_head(info.number, head, size)
        return head, early

    def _read_head(self, info: ShardInfo, rows: Int64) -> tuple[ShardHead, int, Early]:
        schema = self._index.schema(info.number)
        wanted = schema.format.head_range(info)
        if wanted is None:
            raise CorruptShardError("its format needs the whole file; pass fetch='shard'")
        place = np.array([wanted], np.int64)
        role = schema.format.head_role
        if role == "data":
            early = self._read_early(info, place, rows)
            [data] = early.cut(place)
        else:
            early = Early()
            [data] = self._store.read(info.files[role].raw, place)
        try:
            head = schema.format.open_head(info, data, schema.columns)
        except DataError as error:
            raise type(error)(f"{error}; the file is damaged, write or copy it again") from error
        return head, len(data), early

    def _read_early(self, info: ShardInfo, head: Int64, rows: Int64) -> Early:
        """Fetch a head, and with it the bytes where some samples are likely to lie."""
        file, guess = info.files["data"].raw, self._guess(info, rows)
        if guess is not None and self._mine().stake(guess[1]):
            likely, staked = guess
            spans = coalesced(np.concatenate([head, likely]), GAP)
            with suppress(CutShortError):  # the head alone may do, or tell what is wrong
                return Early(spans, self._store.read(file, spans), staked=staked)
        return Early(head, self._store.read(file, head))

    def _guess(self, info: ShardInfo, rows: Int64) -> tuple[Int64, int] | None:
        """Return where some samples are likely to lie, and what is staked on that.

        None if that is not worth a guess: where it is wrong, all was fetched in vain.
        """
        schema = self._index.schema(info.number)
        likely = schema.format.likely_ranges(info, rows, schema.columns) if len(rows) else None
        if likely is None:
            return None
        likely = np.clip(likely, 0, info.files["data"].raw.bytes)
        likely = likely[likely[:, 0] < likely[:, 1]]  # it is a guess: it may be of no bytes
        if all(column.encoding.size is not None for column in schema.columns):
            return likely, 0  # it is known
        spans = coalesced(likely, GAP) if len(likely) else likely
        worth = (spans[:, 1] - spans[:, 0]).sum() <= _GUESSED_BYTES
        return (spans, len(spans)) if worth and len(spans) <= self._mine().luck else None

    def _mine(self) -> _Memory:
        # A fork's copy may have been made while another thread held a lock of it.
        if self._memory.pid != os.getpid():
            self._memory = _Memory()
        return self._memory


class _RangeReader(ShardReader):
    """Reads one shard."""

    def __init__(self, shards: RangeShards, info: ShardInfo) -> None:
        self._shards, self._info = shards, info

    def __len__(self) -> int:
        return self._info.samples

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        values = self.take(np.array([index], np.int64), columns)
        split = zip(columns, values)
        return {column.name: column.encoding.split(found)[0] for column, found in split}

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        return self._shards.take(self._info, rows, columns)
