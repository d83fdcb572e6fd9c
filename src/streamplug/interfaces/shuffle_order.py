"""Orders of epochs: bounds of canonical nodes, mixing of bits, and an order held in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces import Permutation
from streamplug.types import Int64


def canonical_node_bounds(total: int, canonical_nodes: int) -> Int64:
    """Split ``[0, total)`` evenly into C canonical nodes: ``total * c // C``, shape ``[C + 1]``."""
    return np.array([total * c // canonical_nodes for c in range(canonical_nodes + 1)], np.int64)


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
