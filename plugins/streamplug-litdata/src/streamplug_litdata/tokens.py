"""Chunks of tokens without leaf sizes, read as stored or in blocks of fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError
from streamplug.interfaces import Column, Encoding, GatherBuffer, ShardHeader, ShardReader
from streamplug.types import Bytes1D, ColumnValues, Int64
from streamplug_litdata.items import U32, ItemsHead, decoded, head_size
from streamplug_litdata.values import Vector


class TokensHeader(ItemsHead):
    """Offsets of items that consist only of tokens."""

    def single(self, columns: Sequence[Column]) -> None:
        return None

    def sizes(self, column: Column) -> Int64 | None:
        return np.diff(self.offsets).astype(np.int64)

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        sizes = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        return [decoded(column, rows, data, starts, sizes) for column in columns]


class TokenBlock(Vector):
    """A vector of fixed length."""

    def __init__(self, dtype: np.dtype[Any], length: int) -> None:
        """Set the dtype and the number of items."""
        super().__init__(dtype)
        self.dtype = np.dtype((dtype, (length,)))
        self.size = self.dtype.itemsize

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        return Encoding.decode_batch(self, buffer, starts, sizes)


class BlocksHeader(ShardHeader):
    """Offsets of blocks of tokens, which are contiguous from the first item on."""

    def __init__(self, head: Bytes1D, blocks: int, size: int, step: int) -> None:
        """Parse the header of a chunk.

        Args:
            head: The first four or more bytes of the chunk.
            blocks: Number of blocks according to the index.
            size: Bytes of the chunk.
            step: Bytes of a block.

        Raises:
            CorruptShardError: If the chunk is too small for the blocks.
        """
        items = int(head[:4].view(U32)[0]) if len(head) >= 4 else 0
        self._first, self._step = head_size(items), step
        if len(head) < 4 or self._first + blocks * step > size:
            raise CorruptShardError(
                f"{size} bytes cannot hold {items} items and the {blocks} blocks of the index"
            )

    def byte_ranges(self, rows: Int64) -> Int64:
        starts = self._first + rows.astype(np.int64) * self._step
        return np.stack([starts, starts + self._step], axis=1)

    def sizes(self, column: Column) -> None:
        return None  # the encoding has a fixed size

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        sizes = np.full(len(rows), self._step, np.int64)
        return [decoded(column, rows, data, starts, sizes) for column in columns]


class BlocksReader(ShardReader):
    """Reads the blocks of one chunk."""

    def __init__(self, data: Bytes1D, blocks: int, head: BlocksHeader) -> None:
        """Read blocks in `data` at the offsets of `head`."""
        self._data, self._blocks, self._head = data, blocks, head

    def __len__(self) -> int:
        return self._blocks

    def byte_range(self, index: int) -> tuple[int, int]:
        start, stop = self._head.byte_ranges(np.array([index]))[0].tolist()
        return start, stop

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.byte_ranges(rows)[:, 0]
        return self._head.take(rows, self._data, starts, columns)
