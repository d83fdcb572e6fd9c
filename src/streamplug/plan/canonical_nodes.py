"""Interleaving of the canonical nodes of an order.

Position ``f`` of the interleaved sequence of C canonical nodes is position ``f // C`` of canonical node
``f % C`` until the shortest one ends. Sizes differ by one at most; the last entries of longer canonical nodes
come at the end.
"""

from __future__ import annotations

import numpy as np

from streamplug.interfaces import canonical_node_bounds, locate_entry
from streamplug.types import Int64


class CanonicalNodes:
    """Split of ``[0, size)`` into `count` canonical nodes at `bounds`, and their interleaved sequence."""

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.bounds = canonical_node_bounds(size, count)
        self._even = size // count * count  # end of the positions with all canonical nodes
        self._longer = np.flatnonzero(np.diff(self.bounds) > size // count)

    def entries(self, positions: Int64) -> Int64:
        offset, canonical_node = np.divmod(positions, self.count)
        if len(self._longer):
            excess = np.clip(positions - self._even, 0, len(self._longer) - 1)
            canonical_node = np.where(positions < self._even, canonical_node, self._longer[excess])
        entries: Int64 = self.bounds[canonical_node] + offset
        return entries

    def position(self, entry: int) -> int:
        canonical_node, offset = locate_entry(self.bounds, entry)
        if offset * self.count < self._even:
            return offset * self.count + canonical_node
        return self._even + int(np.searchsorted(self._longer, canonical_node))
