"""Two passes of shuffling within blocks of a canonical node; the second is offset by half a block.

A block of the second pass consists of two halves of blocks of the first. Sequential reading of a
canonical node shuffles each block of either pass once and keeps one and a half blocks of ids in memory,
even for a rank that reads only every n-th id; with several canonical nodes, this much for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.builtin.shuffles.draws import FIRST, SECOND
from streamplug.types import Int64

CachedIds: TypeAlias = "NDArray[np.uint32] | Int64"
"""Cached ids, as uint32 if possible."""
Draw: TypeAlias = Callable[[int, int], np.random.Generator]
"""Returns the generator of a pass and a block."""


class MixedCanonicalNode:
    """The ids of a canonical node in the order of an epoch, computed lazily."""

    def __init__(
        self, length: int, size: int, plain: Callable[[int, int], Int64], draw: Draw, total: int
    ) -> None:
        """Mix a canonical node.

        Args:
            length: Number of positions in the canonical node.
            size: Number of positions in a block.
            plain: Returns a new array of the unmixed ids in a range of positions.
            draw: Returns the generator of a pass and a block.
            total: Upper bound of the ids (exclusive).
        """
        self._length, self._size, self._half = length, size, size // 2
        self._plain, self._draw = plain, draw
        self._dtype = np.uint32 if total <= 1 << 32 else np.int64
        none: CachedIds = np.empty(0, self._dtype)
        # Start and ids of the latest block of the second pass; number of the latest block of the first,
        # and its ids still needed. The tuples are replaced as a whole, for thread safety.
        self._second = 0, none
        self._first = -1, none

    def at(self, positions: Int64) -> Int64:
        """Return the ids at positions."""
        start, ids = self._second
        if _within(positions - start, len(ids)):
            return ids[positions - start].astype(np.int64)
        blocks = (positions + self._half) // self._size
        shuffled = np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            in_block = blocks == block
            if start != self._start(block) or not len(ids):
                start, ids = self._second = self._start(block), self._second_pass(block)
            shuffled[in_block] = ids[positions[in_block] - start]
        return shuffled

    def position(self, unmixed: int) -> int:
        """Return the position after both passes of an unmixed position."""
        for use, shift in ((FIRST, 0), (SECOND, self._half)):
            block = (unmixed + shift) // self._size
            start = max(block * self._size - shift, 0)
            stop = min((block + 1) * self._size - shift, self._length)
            order = np.arange(start, stop)
            self._draw(use, block).shuffle(order)
            unmixed = start + int(np.flatnonzero(order == unmixed)[0])
        return unmixed

    def _start(self, block: int) -> int:
        return max(block * self._size - self._half, 0)

    def _second_pass(self, block: int) -> CachedIds:
        before, rest = self._first
        if before != block - 1:
            rest = self._first_pass(block - 1)[1]
        head, following = self._first_pass(block)
        self._first = block, following
        ids = np.concatenate([rest, head], dtype=np.int64)
        self._draw(SECOND, block).shuffle(ids)
        return ids.astype(self._dtype, copy=False)

    def _first_pass(self, block: int) -> tuple[CachedIds, CachedIds]:
        """Return the two parts of a block of the first pass, split at the boundary of second-pass blocks."""
        start, stop = max(block * self._size, 0), min((block + 1) * self._size, self._length)
        if start >= stop:
            return np.empty(0, self._dtype), np.empty(0, self._dtype)
        ids = self._plain(start, stop)
        self._draw(FIRST, block).shuffle(ids)
        cut = self._size - self._half
        return ids[:cut].astype(self._dtype), ids[cut:].astype(self._dtype)


def _within(offsets: Int64, size: int) -> bool:
    """Return whether all offsets are in ``[0, size)``."""
    # As unsigned integers, negative offsets are larger than any size.
    return not len(offsets) or int(offsets.view(np.uint64).max()) < size
