"""Selection of samples in one order, with lookup by position and by sample."""

from __future__ import annotations

import numpy as np

from streamplug.interfaces import Order
from streamplug.plan.selection import Selection
from streamplug.plugin_kit.shuffle_order import canonical_node_bounds
from streamplug.types import Int64


class OrderedSamples:
    """A selection of samples in the order of a shuffle; `size` is its number of entries.

    An entry is a position in the concatenation of the canonical nodes.
    """

    def __init__(self, selection: Selection, order: Order, canonical_nodes: int) -> None:
        self.size = selection.size
        self._selection, self._order = selection, order
        self._canonical_nodes = canonical_nodes
        self._bounds = canonical_node_bounds(self.size, canonical_nodes)

    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of entries, in any shape; -1 stays -1."""
        flat = entries.reshape(-1)
        if not len(flat):
            return entries
        if self._canonical_nodes == 1 and flat.min() >= 0:
            ids = self._selection.samples(self._order.at(0, flat))
        else:
            ids = self._samples_by_canonical_node(flat)
        return ids.reshape(entries.shape)

    def _samples_by_canonical_node(self, entries: Int64) -> Int64:
        nodes = np.searchsorted(self._bounds, entries, side="right") - 1  # -1 for no entry
        if self._canonical_nodes < 1 << 15:
            nodes = nodes.astype(np.int16)  # NumPy sorts int16 much faster
        by_node = np.argsort(nodes, kind="stable")
        nodes = nodes[by_node]
        positions = entries[by_node] - self._bounds[nodes]
        edges = [0, *(np.flatnonzero(np.diff(nodes)) + 1).tolist(), len(entries)]
        for node, begin, end in zip(nodes[edges[:-1]].tolist(), edges, edges[1:]):
            run = slice(begin, end)
            if node >= 0:
                positions[run] = self._selection.samples(self._order.at(node, positions[run]))
            else:
                positions[run] = -1
        ids = np.empty_like(positions)
        ids[by_node] = positions
        return ids

    def entries(self, sample: int) -> list[int]:
        entries = []
        for selected in self._selection.entries(sample):
            canonical_node, position = self._order.find(selected)
            entries.append(int(self._bounds[canonical_node]) + position)
        return entries
