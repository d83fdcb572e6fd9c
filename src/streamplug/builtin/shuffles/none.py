"""The order of the shards as they are."""

from __future__ import annotations

from streamplug.interfaces import Order, ShuffleAlgorithm
from streamplug.interfaces.shuffle import lane_bounds, lane_place
from streamplug.types import Int64


class StoredOrder(Order):
    """Each lane is a stretch of the data set, in stored order."""

    def __init__(self, total: int, canonical_nodes: int) -> None:
        """Cut ``[0, total)`` into lanes."""
        self._bounds = lane_bounds(total, canonical_nodes)

    def at(self, node: int, positions: Int64) -> Int64:
        return positions + int(self._bounds[node])

    def find(self, sample: int) -> tuple[int, int]:
        return lane_place(self._bounds, sample)


class NoShuffle(ShuffleAlgorithm):
    """Does not shuffle."""

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Order:
        return StoredOrder(int(starts[-1]), canonical_nodes)
