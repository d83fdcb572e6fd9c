"""The stored order."""

from __future__ import annotations

from streamplug.interfaces import Permutation, ShuffleAlgorithm, canonical_node_bounds, locate_entry
from streamplug.types import Int64


class StoredOrder(Permutation):
    """The stored order; each canonical node is a contiguous range of the data set."""

    def __init__(self, total: int, canonical_nodes: int) -> None:
        self._bounds = canonical_node_bounds(total, canonical_nodes)

    def at(self, canonical_node: int, positions: Int64) -> Int64:
        return positions + int(self._bounds[canonical_node])

    def find(self, sample: int) -> tuple[int, int]:
        return locate_entry(self._bounds, sample)


class NoShuffle(ShuffleAlgorithm):
    """No shuffle."""

    uses_block_size = False

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Permutation:
        return StoredOrder(int(starts[-1]), canonical_nodes)
