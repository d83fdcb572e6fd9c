"""Chunks with internal compression: per item, or in frames of several hundred items.

Chunks of frames begin, all integers little-endian, with::

    8 bytes           LDFZ01 and two zeros
    uint16 * 2        version, 1; flags, 0
    uint32 * 3        N, the number of items; items per frame; F, the number of frames
    uint32[N + 1]     offset of each item in the decompressed frames, concatenated; the end of the last
    frames            F times: uint32 * 2, first item and number of items; uint64, offset of the frame in
                      the file; uint32 * 2, compressed and decompressed bytes
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError, DataError
from streamplug.interfaces import MAX_VALUE_BYTES, Column, Compression
from streamplug.plugin import make
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample
from streamplug_litdata.items import U32, ItemsHead, ItemsReader
from streamplug_litdata.memory_bounds import check_decoded_size

MAGIC = b"LDFZ01\0\0"

_HEAD = np.dtype([("magic", "S8"), ("version", "<u2"), ("flags", "<u2"), ("counts", "<u4", (3,))])
_FRAME = np.dtype([("items", "<u4", (2,)), ("begin", "<u8"), ("sizes", "<u4", (2,))])
_EXPANSION, _EXPANSION_LEAST = 2_000, 1 << 26
"""Maximum ratio of an item's size to its compressed size; bytes that are always permitted."""


def _zstd() -> Compression:
    compression: Compression = make("compression", "zstd")
    return compression


class PackedHead(ItemsHead):
    """Offsets of items that are compressed one by one."""

    def single(self, columns: Sequence[Column]) -> None:
        return None

    def sizes(self, column: Column) -> Int64 | None:
        return None

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        limit = max((c.encoding.max_value_bytes for c in columns), default=MAX_VALUE_BYTES)
        codec, sizes = _zstd(), (self.offsets[rows + 1] - self.offsets[rows]).tolist()
        view, items = memoryview(data), []  # type: ignore[arg-type]  # an array is a buffer
        for row, start, size in zip(rows.tolist(), starts.tolist(), sizes):
            try:
                max_bytes = min(max(_EXPANSION * size, _EXPANSION_LEAST), limit)
                items.append(codec.decompress(view[start : start + size], max_size=max_bytes))
            except DataError as error:
                raise CorruptShardError(f"sample {row}: {error}") from error
        lengths = np.fromiter(map(len, items), np.int64, len(items))
        plain = np.frombuffer(b"".join(items), np.uint8)
        return self.leaves.take(plain, rows, np.cumsum(lengths) - lengths, lengths, columns)


class FramesReader(ItemsReader):
    """Reads a chunk of frames; frames stay decompressed after the first read."""

    def __init__(self, data: Bytes1D, items: int, columns: Sequence[Column]) -> None:
        """Check the frame directory.

        Raises:
            CorruptShardError: If it does not match the index or the file, or is inconsistent.
        """
        if len(data) < _HEAD.itemsize:
            raise CorruptShardError(f"{len(data)} bytes cannot hold the {items} items of the index")
        head = data[: _HEAD.itemsize].view(_HEAD)[0]
        count, _, frames = map(int, head["counts"])
        if head["version"] != 1:
            raise CorruptShardError(f"frames of version {head['version']} are not read, only 1")
        if count != items:
            raise CorruptShardError(f"it holds {count} items, the index says {items}")
        table = _HEAD.itemsize + 4 * (items + 1)
        stop = table + frames * _FRAME.itemsize
        if stop > len(data):
            raise CorruptShardError(f"its directory of {frames} frames ends beyond the file")
        offsets = data[_HEAD.itemsize : table].view(U32)
        self._frames = data[table:stop].view(_FRAME)
        self._firsts = _checked(self._frames, offsets, stop, len(data))
        self._file = data
        self._done = np.zeros(frames, bool)
        check_decoded_size(int(offsets[-1]), len(data), columns)
        # Allocated lazily: pages take memory only once they are written.
        plain = np.empty(int(offsets[-1]), np.uint8)
        super().__init__(plain, ItemsHead(offsets, columns))
        self._plain = plain

    def byte_range(self, index: int) -> None:  # type: ignore[override]  # an item is not contiguous in the file
        return None

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        return partial(self.row, columns=columns)

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        blocks = np.unique(np.searchsorted(self._firsts, rows, side="right") - 1)
        for frame in blocks[~self._done[blocks]].tolist():
            self._unpack(frame)
        return super().take(rows, columns)

    def _unpack(self, number: int) -> None:
        frame = self._frames[number]
        first, count = map(int, frame["items"])
        begin, (stored, size) = int(frame["begin"]), map(int, frame["sizes"])
        packed = memoryview(self._file[begin : begin + stored])  # type: ignore[arg-type]  # an array is a buffer
        try:
            plain = _zstd().decompress(packed, max_size=size)
            if len(plain) != size:
                raise CorruptShardError(f"{len(plain)} bytes, not {size}")
        except DataError as error:
            raise CorruptShardError(
                f"samples {first} to {first + count - 1}, frame {number} at byte {begin}: {error}"
            ) from error
        start = int(self._head.offsets[first])
        # Without a lock, which a child forked meanwhile would wait for: all threads write the same bytes.
        self._plain[start : start + size] = np.frombuffer(plain, np.uint8)
        self._done[number] = True


def _checked(frames: Any, offsets: Any, stop: int, size: int) -> Int64:
    """Return the first item of each frame; refuse frames that are not contiguous or exceed the file."""
    firsts, counts = frames["items"].astype(np.int64).T
    ends = firsts + counts
    edges = offsets.astype(np.int64)
    whole = np.array_equal(np.append(firsts, len(edges) - 1), np.append(0, ends)) and counts.all()
    if not whole or edges[0] != 0 or (np.diff(edges) < 0).any():
        raise CorruptShardError("its frames are not those of its items")
    begins = frames["begin"]
    stored, held = frames["sizes"].astype(np.int64).T
    if (
        (begins < stop).any()
        or (begins > size).any()
        or (size - begins.astype(np.int64) < stored).any()
    ):
        raise CorruptShardError("its frames end beyond the file")
    if (edges[ends] - edges[firsts] != held).any():
        raise CorruptShardError("its frames do not hold what its items take")
    first_items: Int64 = firsts
    return first_items
