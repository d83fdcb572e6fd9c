"""Shuffles shards, then samples inside blocks, twice: the blocks of the second pass are shifted.

A sample travels about a block either way and there are no block edges, yet any position can be
computed from at most three blocks: nothing grows with the length of the epoch.

Shards are dealt in groups, so that neither does it grow with the number of shards beyond 65,536: a
group is every K-th shard, so each is spread over the whole data set, and its members are looked at
only where they are read.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces import Order, ShuffleAlgorithm
from streamplug.interfaces.shuffle import lane_bounds
from streamplug.types import Int64

MAX_GROUPS = 1 << 16

# What a stream of random numbers is for: part of its key, so that no two uses share one.
_SHARDS, _PIECES, _FIRST, _SECOND, _MEMBERS, _SPANS = range(6)


def _generator(seed: int, epoch: int, use: int, lane: int, block: int) -> np.random.Generator:
    """Return a generator of its own for every combination of arguments."""
    # The low word of the counter counts draws; the others and the key tell the streams apart.
    key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(counter=[0, block, lane, use], key=key))


class Groups:
    """The shards, dealt into groups: group g is the shards g, g + K, g + 2K and so on.

    Attributes:
        sizes: Samples of each group, shape ``[K]``.
    """

    def __init__(self, starts: Int64, seed: int, limit: int) -> None:
        """Deal the shards that begin at `starts`, of which the last is the end, to `limit` groups."""
        self._starts, self._seed = starts, seed
        self._shards = len(starts) - 1
        count = self._count = min(self._shards, limit)
        whole = self._shards // count * count if count else 0
        # Differences of sums, so that no array of all sizes is made.
        ends = starts[1 : whole + 1].reshape(-1, max(count, 1)).sum(0)
        self.sizes: Int64 = ends - starts[:whole].reshape(-1, max(count, 1)).sum(0)
        self.sizes[: self._shards - whole] += np.diff(starts[whole:])

    def group_of(self, shard: int) -> int:
        """Return the group that a shard is in."""
        return shard % self._count

    def spans(self, group: int, begin: int, size: int) -> tuple[Int64, Int64]:
        """Return the first id and the size of each span of ids in a stretch of a group."""
        members = np.arange(group, self._shards, self._count)
        if len(members) > 1:
            members = _generator(self._seed, 0, _MEMBERS, group, 0).permutation(members)
        firsts = self._starts[members]
        ends = np.cumsum(self._starts[members + 1] - firsts)
        starts = np.concatenate([[0], ends[:-1]])
        low, high = np.maximum(starts, begin), np.minimum(ends, begin + size)
        kept = high > low
        return (firsts + low - starts)[kept], (high - low)[kept]


class WindowOrder(Order):
    """The order of one epoch; see the module."""

    def __init__(self, starts: Int64, lanes: int, seed: int, epoch: int, block_size: int) -> None:
        """Permute the groups and deal them to the lanes, cutting those that lie across a bound.

        This depends on the seed alone, so that a lane has the same shards in every epoch; the order
        of a lane's pieces, and of the shards inside a piece, changes with the epoch.
        """
        self._starts = starts
        self._groups = Groups(starts, seed, MAX_GROUPS)
        sizes = self._groups.sizes
        self._dealt = _generator(seed, 0, _SHARDS, 0, 0).permutation(len(sizes))
        ends = np.cumsum(sizes[self._dealt])
        self._group_starts = ends - sizes[self._dealt]
        self._bounds = lane_bounds(int(ends[-1]) if len(ends) else 0, lanes)
        # A piece is what one lane has of one group.
        self._edges = np.union1d(np.union1d(ends, self._bounds), np.zeros(1, np.int64))
        self._dealt_as = np.searchsorted(ends, self._edges[:-1], side="right")
        self._lane_pieces = np.searchsorted(self._edges, self._bounds)
        self._seed, self._epoch, self._block = seed, epoch, block_size
        self._permutation = lru_cache(maxsize=8)(self._permute)
        self._lane = lru_cache(maxsize=64)(self._arrange)
        self._piece = lru_cache(maxsize=64)(self._expand)

    def at(self, node: int, positions: Int64) -> Int64:
        positions = self._mix(node, _SECOND, positions)
        positions = self._mix(node, _FIRST, positions)
        starts, pieces = self._lane(node)
        place = np.searchsorted(starts, positions, side="right") - 1
        offsets = positions - starts[place]
        if len(self._groups.sizes) == len(self._starts) - 1:  # a piece is of one shard
            piece = pieces[place]
            group = self._dealt_as[piece]
            begin = self._edges[piece] - self._group_starts[group]
            return self._starts[self._dealt[group]] + begin + offsets
        found = np.empty_like(positions)
        for number in _distinct(place):
            here = place == number
            found[here] = self._in_piece(int(pieces[number]), offsets[here])
        return found

    def find(self, sample: int) -> tuple[int, int]:
        shard = int(np.searchsorted(self._starts, sample, side="right")) - 1
        group = int(np.flatnonzero(self._dealt == self._groups.group_of(shard))[0])
        first = int(np.searchsorted(self._dealt_as, group))
        for piece in range(first, len(self._dealt_as)):
            firsts, sizes = self._piece(piece)
            span = np.flatnonzero((firsts <= sample) & (sample < firsts + sizes))
            if len(span):
                break
        offset = int(sizes[: span[0]].sum() + sample - firsts[span[0]])
        lane = int(np.searchsorted(self._lane_pieces, piece, side="right")) - 1
        starts, pieces = self._lane(lane)
        position = int(starts[np.flatnonzero(pieces == piece)[0]]) + offset
        for use in (_FIRST, _SECOND):
            position = self._unmix(lane, use, position)
        return lane, position

    def _arrange(self, lane: int) -> tuple[Int64, Int64]:
        """Return where each piece of a lane starts in this epoch, and which piece it is."""
        pieces = np.arange(self._lane_pieces[lane], self._lane_pieces[lane + 1])
        pieces = _generator(self._seed, self._epoch, _PIECES, lane, 0).permutation(pieces)
        sizes = self._edges[pieces + 1] - self._edges[pieces]
        return np.cumsum(sizes) - sizes, pieces

    def _expand(self, piece: int) -> tuple[Int64, Int64]:
        """Return the spans of ids of a piece, in this epoch's order."""
        group = int(self._dealt_as[piece])
        begin, size = int(self._edges[piece]), int(self._edges[piece + 1] - self._edges[piece])
        begin -= int(self._group_starts[group])
        firsts, sizes = self._groups.spans(int(self._dealt[group]), begin, size)
        order = _generator(self._seed, self._epoch, _SPANS, 0, piece).permutation(len(sizes))
        return firsts[order], sizes[order]

    def _in_piece(self, piece: int, offsets: Int64) -> Int64:
        firsts, sizes = self._piece(piece)
        ends = np.cumsum(sizes)
        span = np.searchsorted(ends, offsets, side="right")
        found: Int64 = firsts[span] + offsets - (ends - sizes)[span]
        return found

    # -- blocks -------------------------------------------------------------------

    def _mix(self, lane: int, use: int, positions: Int64) -> Int64:
        """Map positions through the permutations of the blocks that they lie in."""
        blocks = (positions + self._shift(use)) // self._block
        mixed = np.empty_like(positions)
        distinct = _distinct(blocks)
        for block in distinct:
            here = blocks == block if len(distinct) > 1 else slice(None)
            start = max(block * self._block - self._shift(use), 0)
            permutation = self._permutation(lane, use, block)
            mixed[here] = permutation[positions[here] - start]
            mixed[here] += start
        return mixed

    def _unmix(self, lane: int, use: int, position: int) -> int:
        """Return the position that `_mix` maps to this one."""
        block = (position + self._shift(use)) // self._block
        start = max(block * self._block - self._shift(use), 0)
        return start + int(
            np.flatnonzero(self._permutation(lane, use, block) == position - start)[0]
        )

    def _shift(self, use: int) -> int:
        return self._block // 2 if use == _SECOND else 0

    def _permute(self, lane: int, use: int, block: int) -> NDArray[np.int32]:
        length = int(self._bounds[lane + 1] - self._bounds[lane])
        start = max(block * self._block - self._shift(use), 0)
        stop = min((block + 1) * self._block - self._shift(use), length)
        values = np.arange(stop - start, dtype=np.int32)
        return _generator(self._seed, self._epoch, use, lane, block).permutation(values)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an order is made where it is used; send its arguments instead")


def _distinct(numbers: Int64) -> list[int]:
    """Return the distinct values, quickly where they are one or two neighbours."""
    if not len(numbers):
        return []
    low, high = int(numbers.min()), int(numbers.max())
    return list(range(low, high + 1)) if high - low < 2 else np.unique(numbers).tolist()


class WindowShuffle(ShuffleAlgorithm):
    """The default shuffle; see the module."""

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Order:
        return WindowOrder(starts, canonical_nodes, seed, epoch, min(block_size, 1 << 30))
