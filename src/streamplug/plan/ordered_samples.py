"""Selection of samples in one order, with lookup by position and by sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from streamplug.errors import PluginError
from streamplug.interfaces import Permutation, canonical_node_bounds
from streamplug.plan.selection import Selection
from streamplug.types import Int64


class OrderedSamples:
    """A selection of samples in the order of a shuffle; `size` is its number of entries.

    An entry is a position in the concatenation of the canonical nodes.
    """

    def __init__(
        self, selection: Selection, make_order: Callable[[], Permutation], canonical_nodes: int
    ) -> None:
        """Order a selection; `make_order` is called at the first use, as it may compute all positions."""
        self.size = selection.size
        self._selection, self._make_order = selection, make_order
        self._canonical_nodes = canonical_nodes
        self._bounds = canonical_node_bounds(self.size, canonical_nodes)
        self._is_checked = False

    @cached_property
    def _order(self) -> Permutation:
        return self._make_order()

    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of entries, in any shape."""
        flat = entries.reshape(-1)
        if not len(flat):
            return entries
        if self._canonical_nodes == 1:
            ids = self._selection.samples(self._read_order(0, flat))
        else:
            ids = self._samples_by_canonical_node(flat)
        return ids.reshape(entries.shape)

    def _samples_by_canonical_node(self, entries: Int64) -> Int64:
        nodes = np.searchsorted(self._bounds, entries, side="right") - 1
        if self._canonical_nodes < 1 << 15:
            nodes = nodes.astype(np.int16)  # NumPy sorts int16 much faster
        by_node = np.argsort(nodes, kind="stable")
        nodes = nodes[by_node]
        positions = entries[by_node] - self._bounds[nodes]
        edges = [0, *(np.flatnonzero(np.diff(nodes)) + 1).tolist(), len(entries)]
        for node, begin, end in zip(nodes[edges[:-1]].tolist(), edges, edges[1:]):
            run = slice(begin, end)
            positions[run] = self._selection.samples(self._read_order(node, positions[run]))
        ids = np.empty_like(positions)
        ids[by_node] = positions
        return ids

    def _read_order(self, node: int, positions: Int64) -> Int64:
        """Return the ids at positions of a canonical node; those of the first call are checked for repeats.

        Raises:
            PluginError: If the order returns anything but ids of its samples.
        """
        ids: Int64 = self._order.at(node, positions)
        result: object = ids  # unchecked so far
        kind = f"the order {type(self._order).__module__}.{type(self._order).__qualname__}"
        if not isinstance(result, np.ndarray):
            raise PluginError(f"{kind}: at() returned {type(result).__name__}, not an array of ids")
        if ids.shape != positions.shape or ids.dtype.kind not in "iu":
            raise PluginError(
                f"{kind}: at() returned {ids.dtype} of shape {ids.shape}: expected ids, that is, integers of "
                f"shape {positions.shape}"
            )
        if ids.min() < 0 or ids.max() >= self.size:
            wrong = int(ids[(ids < 0) | (ids >= self.size)][0])
            raise PluginError(
                f"{kind}: at() returned {wrong} in canonical node {node}: expected ids in [0, {self.size})"
            )
        if not self._is_checked:
            if len(np.unique(ids)) < len(np.unique(positions)):
                raise PluginError(
                    f"{kind}: at() returned an id for several positions of canonical node {node}: expected "
                    f"each of the {self.size} ids once over all canonical nodes"
                )
            self._is_checked = True
        return ids

    def entries(self, sample: int) -> list[int]:
        entries = []
        for selected in self._selection.entries(sample):
            canonical_node, position = self._order.find(selected)
            entries.append(int(self._bounds[canonical_node]) + position)
        return entries
