r"""Compressed sets of row numbers, which are read through a memory map.

The representation is that of Roaring bitmaps (Lemire et al., 2016): the rows are split into chunks of 65,536
by their high bits, and each chunk is stored as a sorted array, a bitmap or runs, whichever is smallest. The
file layout is our own, so that it can be used without being parsed; all integers are little-endian::

    magic                      8 bytes, b"sprows1\n"
    header                     int64[4]: rows, chunks, bytes of the contents, row behind the last one
    high bits of each chunk    int64[chunks]
    first position of each     int64[chunks]
    offset of each content     int64[chunks]
    kind of each               uint8[chunks], padded to a multiple of 8 bytes
    contents                   array: uint16[n]; bitmap: 8,192 bytes, lowest bit first;
                               runs: uint16[n, 2], first and last row of each
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from tempfile import SpooledTemporaryFile, gettempdir
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError
from streamplug.plan import RowSelection
from streamplug.transfer import map_disk_errors
from streamplug.types import Bytes1D, Int64

_MAGIC = b"sprows1\n"
_HEADER = struct.Struct("<4q")
_CHUNK_BITS = 16
_CHUNK_ROWS = 1 << _CHUNK_BITS
_BITMAP_BYTES = _CHUNK_ROWS // 8
_ARRAY, _BITMAP, _RUNS = range(3)
_CACHED_CHUNKS = 256
_MAX_BYTES_IN_MEMORY = 64 << 20
_MAX_UNPACKED_ROWS = 1 << 21
"""Sets of at most this many rows are kept as an array of 8 bytes a row, which is faster."""


class RowSetBuilder:
    """Builder of a row set from ascending rows; large contents are kept in a temporary file."""

    def __init__(self) -> None:
        # High bits, first position, offset and kind of each chunk.
        self._tables: list[tuple[int, int, int, int]] = []
        self._contents = SpooledTemporaryFile(_MAX_BYTES_IN_MEMORY)  # noqa: SIM115 - closed by `__exit__`
        self._size = self._offset = 0
        self._pending: list[Int64] = []  # rows of the last chunk, which may go on
        self._last = -1

    def __enter__(self) -> RowSetBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._contents.close()

    def add(self, rows: Int64) -> None:
        """Append ascending rows, all greater than those before."""
        if not len(rows):
            return
        if rows[0] <= self._last or (np.diff(rows) <= 0).any():
            raise ValueError("rows must be ascending")
        self._last = int(rows[-1])
        high = rows >> _CHUNK_BITS
        cuts = [0, *(np.flatnonzero(np.diff(high)) + 1).tolist(), len(rows)]
        for start, stop in pairwise(cuts):
            if self._pending and self._pending[0][0] >> _CHUNK_BITS != high[start]:
                self._flush()
            self._pending.append(rows[start:stop])

    def _flush(self) -> None:
        rows = np.concatenate(self._pending)
        self._pending = []
        low = (rows & (_CHUNK_ROWS - 1)).astype("<u2")
        cuts = np.flatnonzero(np.diff(low.astype(np.int64)) != 1) + 1
        if 4 * (len(cuts) + 1) < min(2 * len(low), _BITMAP_BYTES):
            kind, content = _RUNS, np.stack([low[[0, *cuts]], low[[*(cuts - 1), -1]]], 1)
        elif 2 * len(low) <= _BITMAP_BYTES:
            kind, content = _ARRAY, low
        else:
            mask = np.zeros(_CHUNK_ROWS, bool)
            mask[low] = True
            kind, content = _BITMAP, np.packbits(mask, bitorder="little")
        self._tables.append((int(rows[0]) >> _CHUNK_BITS, self._size, self._offset, kind))
        self._contents.write(content.tobytes())
        self._size, self._offset = self._size + len(low), self._offset + content.nbytes

    def write(self, file: IO[bytes]) -> None:
        """Write the set; nothing can be added afterwards."""
        if self._pending:
            self._flush()
        tables = np.array(self._tables, "<i8").reshape(-1, 4)
        kinds = tables[:, 3].astype(np.uint8).tobytes()
        file.write(_MAGIC + _HEADER.pack(self._size, len(tables), self._offset, self._last + 1))
        file.write(np.ascontiguousarray(tables[:, :3].T).tobytes())
        file.write(kinds + bytes(-len(kinds) % 8))
        self._contents.seek(0)
        shutil.copyfileobj(self._contents, file)


class RowSet(RowSelection):
    """Ascending, distinct rows in compressed form; instances pickle with their bytes or their path.

    Attributes:
        end: The row behind the last one.
        where: Name of the set in errors.
    """

    def __init__(self, source: Bytes1D | Path, where: str) -> None:
        """Open a set.

        Args:
            source: Content of a file as `RowSetBuilder` makes it, or the file, which is mapped.
            where: Name of the set in errors.

        Raises:
            DataError: If it is damaged.
        """
        self._source, self.where = source, where
        self._open()

    def _open(self) -> None:
        data = self._source
        if isinstance(data, Path):
            data = np.memmap(data, np.uint8, "r") if data.stat().st_size else np.zeros(0, np.uint8)
        self._chunks: dict[int, NDArray[np.uint16]] = {}
        self._unpacked: Int64 | None = None
        start = len(_MAGIC) + _HEADER.size
        if len(data) < start or data[: len(_MAGIC)].tobytes() != _MAGIC:
            raise DataError(f"{self.where}: this is not a set of rows; write the view again")
        size, chunks, content, end = _HEADER.unpack(data[len(_MAGIC) : start].tobytes())
        tables = 24 * chunks + chunks + -chunks % 8
        if min(size, chunks, content) < 0 or len(data) != start + tables + content:
            raise DataError(f"{self.where} is truncated or damaged; write the view again")
        numbers = data[start : start + 24 * chunks].view("<i8").reshape(3, chunks)
        self._high, self._firsts, self._offsets = numbers
        self._kinds = data[start + 24 * chunks : start + 25 * chunks]
        self._contents = data[start + tables :]
        self._size, self.end = size, end
        self._check()

    def _check(self) -> None:
        """Check the tables, on whose consistency all methods rely."""
        sizes = np.diff(self._firsts, append=self._size)
        bytes_ = np.diff(self._offsets, append=len(self._contents))
        kinds = self._kinds
        expected = np.where(
            kinds == _ARRAY, 2 * sizes, np.where(kinds == _BITMAP, _BITMAP_BYTES, bytes_)
        )
        valid = (
            (sizes > 0).all()
            and (sizes <= _CHUNK_ROWS).all()
            and (bytes_ == expected).all()
            and (bytes_ % 2 == 0).all()
            and (kinds <= _RUNS).all()
            and (np.diff(self._high) > 0).all()
            and not (self._firsts[:1] != 0).any()
            and not (self._offsets[:1] != 0).any()
            and not (self._high[:1] < 0).any()
            and (self._high[-1] == (self.end - 1) >> _CHUNK_BITS if len(sizes) else self._size == 0)
        )
        if not valid:
            raise DataError(f"{self.where} is damaged: its tables do not fit; write the view again")

    @property
    def path(self) -> Path | None:
        """The file; None for a set in memory."""
        return self._source if isinstance(self._source, Path) else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "where": self.where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return int(self._size)

    def row(self, position: int) -> int:
        if self._unpacked is not None:
            return self._unpacked.item(position)
        return int(self.rows(np.array([position]))[0])

    def rows(self, positions: Int64) -> Int64:
        if self._unpacked is None and self._size <= _MAX_UNPACKED_ROWS:
            parts = [part for _, part in self.blocks()]
            self._unpacked = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        if self._unpacked is not None:
            return self._unpacked[positions]
        flat = positions.reshape(-1)
        chunks = np.searchsorted(self._firsts, flat, side="right") - 1
        rows = np.empty(len(flat), np.int64)
        for chunk, here in _group(chunks):
            low = self._chunk(chunk)[flat[here] - self._firsts[chunk]]
            rows[here] = low.astype(np.int64) + (int(self._high[chunk]) << _CHUNK_BITS)
        return rows.reshape(positions.shape)

    def ranks(self, bounds: Int64) -> Int64:
        high = bounds >> _CHUNK_BITS
        chunks = np.searchsorted(self._high, high)
        within = chunks < len(self._high)
        ranks = np.full(len(bounds), self._size, np.int64)
        ranks[within] = self._firsts[chunks[within]]
        inside = np.flatnonzero(within)
        inside = inside[self._high[chunks[inside]] == high[inside]]
        low = bounds & (_CHUNK_ROWS - 1)
        inside = inside[low[inside] > 0]
        for chunk, places in _group(chunks[inside]):
            here = inside[places]
            ranks[here] += np.searchsorted(self._unpack(chunk), low[here])
        return ranks

    def blocks(self) -> Iterator[tuple[int, Int64]]:
        """Yield the first position and the rows of each chunk."""
        for chunk in range(len(self._high)):
            low = self._unpack(chunk).astype(np.int64)
            yield int(self._firsts[chunk]), low + (int(self._high[chunk]) << _CHUNK_BITS)

    def _chunk(self, chunk: int) -> NDArray[np.uint16]:
        found = self._chunks.get(chunk)
        if found is None:
            if len(self._chunks) >= _CACHED_CHUNKS:
                self._chunks = {}
            found = self._chunks[chunk] = self._unpack(chunk)
        return found

    def _unpack(self, chunk: int) -> NDArray[np.uint16]:
        """Return the low bits of the rows of a chunk."""
        start = int(self._offsets[chunk])
        last = chunk + 1 == len(self._offsets)
        stop = len(self._contents) if last else int(self._offsets[chunk + 1])
        content = self._contents[start:stop]
        kind = self._kinds[chunk]
        if kind == _BITMAP:
            low = np.flatnonzero(np.unpackbits(content, bitorder="little"))
        elif kind == _ARRAY:
            low = content.view("<u2").astype(np.int64)
        else:
            low = _unpack_runs(content.view("<u2").astype(np.int64))
        stop = self._size if last else self._firsts[chunk + 1]
        is_damaged = len(low) != stop - self._firsts[chunk] or (low[1:] <= low[:-1]).any()
        if is_damaged or (last and low[-1] != (self.end - 1) & (_CHUNK_ROWS - 1)):
            raise DataError(f"{self.where} is damaged in chunk {chunk}; write the view again")
        return low.astype(np.uint16)


def _unpack_runs(bounds: Int64) -> Int64:
    """Return the rows of runs; `bounds` has the first and the last row of each. Empty if they are damaged."""
    runs = bounds[: len(bounds) // 2 * 2].reshape(-1, 2)
    lengths = runs[:, 1] - runs[:, 0] + 1
    if (lengths < 1).any():
        return lengths[:0]
    skipped = runs[:, 0] - np.cumsum(lengths) + lengths
    rows: Int64 = np.arange(lengths.sum()) + np.repeat(skipped, lengths)
    return rows


def _group(chunks: Int64) -> Iterator[tuple[int, Int64]]:
    """Yield each chunk and the places where it is."""
    order = np.argsort(chunks, kind="stable")
    cuts = np.flatnonzero(np.diff(chunks[order])) + 1
    for here in np.split(order, cuts) if len(order) else ():
        yield int(chunks[here[0]]), here


def make_row_set(blocks: Iterable[Int64], path: Path | None = None) -> RowSet:
    """Return a row set of ascending blocks of rows, in memory or in a new file."""
    content = BytesIO()
    with map_disk_errors(path or Path(gettempdir())), RowSetBuilder() as builder:
        for rows in blocks:
            builder.add(rows)
        if path is not None:
            with path.open("wb") as file:
                builder.write(file)
            return RowSet(path, path.name)
        builder.write(content)
    return RowSet(np.frombuffer(content.getbuffer(), np.uint8), "the selection")
