"""Shuffle algorithms, and the order of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces.plugin import Plugin
from streamplug.types import Int64


class Permutation(ABC):
    """The order of one epoch: a sequence of ids for each of C canonical nodes.

    Ids are positions in the concatenation of the shards. Each id occurs exactly once over all canonical
    nodes. Canonical node ``c`` has ``total * (c + 1) // C - total * c // C`` positions.
    """

    @abstractmethod
    def at(self, canonical_node: int, positions: Int64) -> Int64:
        """Return the ids at positions of a canonical node.

        The cost depends on the number and spread of the positions, not on the length of the epoch.

        Args:
            canonical_node: In ``[0, C)``.
            positions: Positions in the canonical node, shape ``[n]``, in any order.
        """

    def take(self, canonical_node: int, start: int, stop: int) -> Int64:
        """Return the ids at positions ``[start, stop)`` of a canonical node."""
        return self.at(canonical_node, np.arange(start, stop, dtype=np.int64))

    @abstractmethod
    def find(self, sample: int) -> tuple[int, int]:
        """Return the canonical node of an id and its position there; the cost is bounded as for `at`."""


class ShuffleAlgorithm(Plugin):
    """A shuffle algorithm; a pure function of its arguments.

    Attributes:
        uses_block_size: Whether the order depends on the block size.
        blocks_in_use: Number of blocks of a canonical node whose shards are read at the same time. The
            default block size is then no larger than the cache allows; None if it is the same for all caches.
    """

    uses_block_size: ClassVar[bool] = True
    blocks_in_use: ClassVar[int | None] = None

    def default_canonical_nodes(self, nodes: int) -> int:
        """Return the default number of canonical nodes for a number of machines."""
        return nodes

    def default_block_size(self, canonical_nodes: int) -> int:
        """Return the default block size in samples."""
        return max(4_000_000 // canonical_nodes, 1 << 18)

    @abstractmethod
    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Permutation:
        """Return the order of one epoch.

        Args:
            starts: First id of each shard, then the total, shape ``[shards + 1]``; shards may be empty.
                Often a large memory map: read no more of it than needed.
            canonical_nodes: Number of canonical nodes, at least 1.
            seed: Seed of the run. Shards should be dealt to canonical nodes by it alone, not by the epoch: a
                machine then keeps its shards in all epochs.
            epoch: Number of the epoch, from 0.
            block_size: Distance in samples over which samples are mixed, at least 1.
        """


def canonical_node_bounds(total: int, canonical_nodes: int) -> Int64:
    """Split ``[0, total)`` evenly into C canonical nodes: ``total * c // C``, shape ``[C + 1]``."""
    return np.array([total * c // canonical_nodes for c in range(canonical_nodes + 1)], np.int64)


def merge_bounds(ends: Int64, bounds: Int64) -> Int64:
    """Return the sorted union of the ends of spans, which are sorted, and of bounds that cut them."""
    # np.unique hashes integers, which takes a hundred times as long as to merge sorted ones.
    edges = np.insert(ends, np.searchsorted(ends, bounds), bounds)
    return edges[np.diff(edges, prepend=-1) > 0]


def locate_entry(bounds: Int64, entry: int) -> tuple[int, int]:
    """Return the canonical node of a position, and the offset in it.

    Args:
        bounds: Bounds of the canonical nodes, as returned by `canonical_node_bounds`.
        entry: A position in the concatenation of the canonical nodes.
    """
    canonical_node = int(np.searchsorted(bounds, entry, side="right")) - 1
    return canonical_node, entry - int(bounds[canonical_node])


def mix_bits(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each value by the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = bits ^ (bits >> np.uint64(31))
    return mixed


class ArrayOrder(Permutation):
    """An order held as an array of all ids, for algorithms that compute an epoch at once.

    It takes 8 bytes per sample, and 16 after the first `find`.
    """

    def __init__(self, ids: Int64, canonical_nodes: int) -> None:
        self._ids = ids
        self._positions: Int64 | None = None
        self._bounds = canonical_node_bounds(len(ids), canonical_nodes)

    def at(self, canonical_node: int, positions: Int64) -> Int64:
        ids: Int64 = self._ids[positions + self._bounds[canonical_node]]
        return ids

    def find(self, sample: int) -> tuple[int, int]:
        if self._positions is None:
            self._positions = np.argsort(self._ids)
        return locate_entry(self._bounds, int(self._positions[sample]))
