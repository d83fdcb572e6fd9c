"""Shuffles shards, then samples inside blocks, twice: the blocks of the second pass are shifted.

A sample travels about a block either way and there are no block edges, yet any position can be
computed from at most three blocks: nothing grows with the length of the epoch but a few numbers per
shard.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces import Order, ShuffleAlgorithm
from streamplug.interfaces.shuffle import lane_bounds
from streamplug.types import Int64

# What a stream of random numbers is for: part of its key, so that no two uses share one.
_SHARDS, _PIECES, _FIRST, _SECOND = range(4)


def _generator(seed: int, epoch: int, use: int, lane: int, block: int) -> np.random.Generator:
    """Return a generator of its own for every combination of arguments."""
    # The low word of the counter counts draws; the others and the key tell the streams apart.
    key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(counter=[0, block, lane, use], key=key))


class WindowOrder(Order):
    """The order of one epoch; see the module."""

    def __init__(self, sizes: Int64, lanes: int, seed: int, epoch: int, block_size: int) -> None:
        """Permute the shards and deal them to the lanes, cutting those that lie across a bound.

        The permutation of shards depends on the seed alone, so that a lane has the same shards in
        every epoch; the order of a lane's shards changes with the epoch.
        """
        shards = _generator(seed, 0, _SHARDS, 0, 0).permutation(len(sizes))
        ends = np.cumsum(sizes[shards])
        first_ids = (np.cumsum(sizes) - sizes)[shards]
        self._bounds = lane_bounds(int(ends[-1]) if len(ends) else 0, lanes)
        edges = np.union1d(ends, self._bounds)
        edges = np.union1d(edges, np.zeros(1, np.int64))
        shard = np.searchsorted(ends, edges[:-1], side="right")
        self._piece_ids = first_ids[shard] + edges[:-1] - (ends - sizes[shards])[shard]
        self._piece_sizes = np.diff(edges)
        self._lane_pieces = np.searchsorted(edges, self._bounds)
        self._seed, self._epoch, self._block = seed, epoch, block_size
        self._permutation = lru_cache(maxsize=8)(self._permute)
        self._lane = lru_cache(maxsize=64)(self._arrange)

    def at(self, node: int, positions: Int64) -> Int64:
        positions = self._mix(node, _SECOND, self._block // 2, positions)
        positions = self._mix(node, _FIRST, 0, positions)
        starts, ids = self._lane(node)
        piece = np.searchsorted(starts, positions, side="right") - 1
        found: Int64 = ids[piece] + positions - starts[piece]
        return found

    def _arrange(self, lane: int) -> tuple[Int64, Int64]:
        """Return where each piece of a lane starts, and its first id, in this epoch's order."""
        pieces = np.arange(self._lane_pieces[lane], self._lane_pieces[lane + 1])
        pieces = _generator(self._seed, self._epoch, _PIECES, lane, 0).permutation(pieces)
        sizes = self._piece_sizes[pieces]
        return np.cumsum(sizes) - sizes, self._piece_ids[pieces]

    def _mix(self, lane: int, use: int, shift: int, positions: Int64) -> Int64:
        """Map positions through the permutations of the blocks that they lie in."""
        blocks = (positions + shift) // self._block
        mixed = np.empty_like(positions)
        for block in np.unique(blocks).tolist():
            here = blocks == block
            start = max(block * self._block - shift, 0)
            # Into int64 first: a sum with the int32 of the permutation would overflow.
            mixed[here] = self._permutation(lane, use, shift, block)[positions[here] - start]
            mixed[here] += start
        return mixed

    def _permute(self, lane: int, use: int, shift: int, block: int) -> NDArray[np.int32]:
        length = int(self._bounds[lane + 1] - self._bounds[lane])
        start = max(block * self._block - shift, 0)
        stop = min((block + 1) * self._block - shift, length)
        values = np.arange(stop - start, dtype=np.int32)
        return _generator(self._seed, self._epoch, use, lane, block).permutation(values)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an order is made where it is used; send its arguments instead")


class WindowShuffle(ShuffleAlgorithm):
    """The default shuffle; see the module."""

    def order(
        self, sizes: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Order:
        return WindowOrder(sizes, canonical_nodes, seed, epoch, min(block_size, 1 << 30))
