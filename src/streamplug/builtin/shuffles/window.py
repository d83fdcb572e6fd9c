"""Shuffle of shards, then of samples in two passes of blocks, the second offset by half a block.

A sample moves by about a block in either direction, without block edges, yet any position is computed
from at most three blocks (see `MixedCanonicalNode`): memory does not grow with the epoch.

Beyond 65,536 shards, memory does not grow with their number either: shards are permuted in groups. A
group is every K-th shard, so it is spread over the whole data set, and its members are listed only when
they are read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces import (
    Permutation,
    ShuffleAlgorithm,
    canonical_node_bounds,
    merge_bounds,
)
from streamplug.types import Int64

# Uses of random streams: part of the key, so that no two uses of one shuffle share a stream.
SHARDS, PIECES, FIRST, SECOND, MEMBERS, SPANS = range(6)
MAX_GROUPS = 1 << 16


def generator(
    seed: int, epoch: int, use: int, canonical_node: int, block: int
) -> np.random.Generator:
    """Return an independent generator for every combination of arguments."""
    # The low word of the counter counts draws; the other words and the key distinguish the streams.
    key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(counter=[0, block, canonical_node, use], key=key))


CachedIds: TypeAlias = "NDArray[np.uint32] | Int64"
"""Cached ids, as uint32 if possible."""
Draw: TypeAlias = Callable[[int, int], np.random.Generator]
"""Returns the generator of a pass and a block."""


class MixedCanonicalNode:
    """The ids of a canonical node in the order of an epoch, computed lazily in two passes of blocks.

    A block of the second pass consists of two halves of blocks of the first. Sequential reading of a
    canonical node shuffles each block of either pass once and keeps one and a half blocks of ids in memory,
    even for a rank that reads only every n-th id; with several canonical nodes, this much for each.
    """

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


class Groups:
    """Groups of shards: group g consists of the shards g, g + K, g + 2K and so on.

    Attributes:
        sizes: Samples of each group, shape ``[K]``.
    """

    def __init__(self, starts: Int64, seed: int, limit: int) -> None:
        """Divide shards with the bounds `starts`, shape ``[shards + 1]``, into at most `limit` groups."""
        self._starts, self._seed = starts, seed
        self._shards = len(starts) - 1
        count = self._count = min(self._shards, limit)
        whole = self._shards // count * count if count else 0
        # Differences of sums, to avoid an array of all sizes.
        ends = starts[1 : whole + 1].reshape(-1, max(count, 1)).sum(0)
        self.sizes: Int64 = ends - starts[:whole].reshape(-1, max(count, 1)).sum(0)
        self.sizes[: self._shards - whole] += np.diff(starts[whole:])

    def group_of(self, shard: int) -> int:
        """Return the group of a shard."""
        return shard % self._count

    def spans(self, group: int, begin: int, size: int) -> tuple[Int64, Int64]:
        """Return first id and size of each span of ids in a range of a group."""
        members = np.arange(group, self._shards, self._count)
        if len(members) > 1:
            members = generator(self._seed, 0, MEMBERS, group, 0).permutation(members)
        firsts = self._starts[members]
        ends = np.cumsum(self._starts[members + 1] - firsts)
        starts = np.concatenate([[0], ends[:-1]])
        low, high = np.maximum(starts, begin), np.minimum(ends, begin + size)
        overlaps = high > low
        return (firsts + low - starts)[overlaps], (high - low)[overlaps]


class WindowOrder(Permutation):
    """The order of one epoch; see the module."""

    def __init__(
        self, starts: Int64, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> None:
        """Permute the groups and assign them to canonical nodes, splitting those that cross a bound.

        This depends on the seed alone, so that a canonical node has the same shards in every epoch; the
        order of its pieces, and of the shards within a piece, changes with the epoch.
        """
        self._starts = starts
        self._groups = Groups(starts, seed, MAX_GROUPS)
        sizes = self._groups.sizes
        self._group_order = generator(seed, 0, SHARDS, 0, 0).permutation(len(sizes))
        ends = np.cumsum(sizes[self._group_order])
        self._group_starts = ends - sizes[self._group_order]
        self._bounds = canonical_node_bounds(int(ends[-1]) if len(ends) else 0, canonical_nodes)
        # A piece is the part of one group in one canonical node.
        self._edges = merge_bounds(ends, self._bounds)
        self._piece_groups = np.searchsorted(ends, self._edges[:-1], side="right")
        self._first_pieces = np.searchsorted(self._edges, self._bounds)
        self._seed, self._epoch, self._block = seed, epoch, block_size
        self._arranged = lru_cache(maxsize=64)(self._arrange)
        self._piece = lru_cache(maxsize=64)(self._expand)
        self._canonical_nodes: dict[int, MixedCanonicalNode] = {}

    def at(self, canonical_node: int, positions: Int64) -> Int64:
        return self._canonical_node(canonical_node).at(positions)

    def find(self, sample: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._starts, sample, side="right")) - 1
        group = int(np.flatnonzero(self._group_order == self._groups.group_of(shard))[0])
        first = int(np.searchsorted(self._piece_groups, group))
        for piece in range(first, len(self._piece_groups)):
            firsts, sizes = self._piece(piece)
            span = np.flatnonzero((firsts <= sample) & (sample < firsts + sizes))
            if len(span):
                break
        offset = int(sizes[: span[0]].sum() + sample - firsts[span[0]])
        canonical_node = int(np.searchsorted(self._first_pieces, piece, side="right")) - 1
        starts, pieces = self._arranged(canonical_node)
        position = int(starts[np.flatnonzero(pieces == piece)[0]]) + offset
        return canonical_node, self._canonical_node(canonical_node).position(position)

    def _canonical_node(self, canonical_node: int) -> MixedCanonicalNode:
        if canonical_node not in self._canonical_nodes:
            self._canonical_nodes[canonical_node] = MixedCanonicalNode(
                int(self._bounds[canonical_node + 1] - self._bounds[canonical_node]),
                self._block,
                partial(self._ids, canonical_node),
                lambda use, block: generator(self._seed, self._epoch, use, canonical_node, block),
                int(self._starts[-1]),
            )
        return self._canonical_nodes[canonical_node]

    def _arrange(self, canonical_node: int) -> tuple[Int64, Int64]:
        """Return the start of each piece of a canonical node in this epoch, and the pieces."""
        pieces = np.arange(*self._first_pieces[canonical_node : canonical_node + 2])
        pieces = generator(self._seed, self._epoch, PIECES, canonical_node, 0).permutation(pieces)
        sizes = self._edges[pieces + 1] - self._edges[pieces]
        return np.cumsum(sizes) - sizes, pieces

    def _expand(self, piece: int) -> tuple[Int64, Int64]:
        """Return the spans of ids of a piece, in this epoch's order."""
        group = int(self._piece_groups[piece])
        begin, size = int(self._edges[piece]), int(self._edges[piece + 1] - self._edges[piece])
        begin -= int(self._group_starts[group])
        firsts, sizes = self._groups.spans(int(self._group_order[group]), begin, size)
        order = generator(self._seed, self._epoch, SPANS, 0, piece).permutation(len(sizes))
        return firsts[order], sizes[order]

    def _ids(self, canonical_node: int, start: int, stop: int) -> Int64:
        """Return the unmixed ids at positions ``[start, stop)`` of a canonical node."""
        starts, pieces = self._arranged(canonical_node)
        low, high = np.searchsorted(starts, [start, stop - 1], side="right")
        firsts, sizes = self._spans(pieces[low - 1 : high])
        # The spans may start before the first position and end after the last.
        begins = int(starts[low - 1]) + np.cumsum(sizes) - sizes
        ends = np.minimum(begins + sizes, stop)
        skipped = np.maximum(start - begins, 0)
        ids = np.repeat(firsts - begins, np.maximum(ends - begins - skipped, 0))
        ids += np.arange(start, stop)
        return ids

    def _spans(self, pieces: Int64) -> tuple[Int64, Int64]:
        if len(self._groups.sizes) < len(self._starts) - 1:
            firsts, sizes = zip(*map(self._piece, pieces.tolist()))
            return np.concatenate(firsts), np.concatenate(sizes)
        groups = self._piece_groups[pieces]  # of one shard each
        begin = self._edges[pieces] - self._group_starts[groups]
        starts = self._starts[self._group_order[groups]] + begin
        return starts, self._edges[pieces + 1] - self._edges[pieces]

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an order is made where it is used; send its arguments instead")


class WindowShuffle(ShuffleAlgorithm):
    """The default shuffle; see the module."""

    blocks_in_use = 3

    def default_block_size(self, canonical_nodes: int) -> int:
        return 1 << 18

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Permutation:
        return WindowOrder(starts, canonical_nodes, seed, epoch, min(block_size, 1 << 30))
