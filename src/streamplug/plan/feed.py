"""Feed: some samples in one order, asked by position and by sample."""

from __future__ import annotations

import numpy as np

from streamplug.interfaces import Order
from streamplug.interfaces.shuffle import lane_bounds
from streamplug.plan.selection import Selection
from streamplug.types import Int64


class Feed:
    """A selection of samples in the order of a shuffle.

    Attributes:
        size: Number of entries; entry x is a position in the concatenation of the order's lanes.
    """

    def __init__(self, selection: Selection, order: Order, lanes: int) -> None:
        """Put a selection and the order of so many lanes over it together."""
        self.size = selection.size
        self._selection, self._order = selection, order
        self._lanes, self._bounds = lanes, lane_bounds(self.size, lanes)

    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of some entries, in any shape; -1 stays -1."""
        flat = entries.reshape(-1)
        if not len(flat):
            return entries
        if self._lanes == 1 and flat.min() >= 0:
            found = self._selection.samples(self._order.at(0, flat))
        else:
            found = self._of_lanes(flat)
        return found.reshape(entries.shape)

    def _of_lanes(self, flat: Int64) -> Int64:
        lanes = np.searchsorted(self._bounds, flat, side="right") - 1  # -1 where there is no entry
        if self._lanes < 1 << 15:
            lanes = lanes.astype(np.int16)  # which numpy sorts much faster
        by_lane = np.argsort(lanes, kind="stable")
        lanes = lanes[by_lane]
        positions = flat[by_lane] - self._bounds[lanes]
        edges = [0, *(np.flatnonzero(np.diff(lanes)) + 1).tolist(), len(flat)]
        for lane, begin, end in zip(lanes[edges[:-1]].tolist(), edges, edges[1:]):
            own = slice(begin, end)
            if lane >= 0:
                at = self._order.at(lane, positions[own])
                positions[own] = self._selection.samples(at)
            else:
                positions[own] = -1
        found = np.empty_like(positions)
        found[by_lane] = positions
        return found

    def entries(self, sample: int) -> list[int]:
        """Return the entries of a sample: none, one or several."""
        found = []
        for selected in self._selection.entries(sample):
            lane, position = self._order.find(selected)
            found.append(int(self._bounds[lane]) + position)
        return found
