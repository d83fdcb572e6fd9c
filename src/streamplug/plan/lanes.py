"""The lanes of an order, interleaved to one sequence.

With C lanes, flat position ``f`` is place ``f // C`` of lane ``f % C`` for as long as all lanes last; lanes
differ by one entry at most, and behind those places come the last entries of the longer ones.
"""

from __future__ import annotations

import numpy as np

from streamplug.interfaces.shuffle import lane_bounds, lane_place
from streamplug.types import Int64


class Lanes:
    """A cut of ``[0, size)`` into lanes, and the sequence that takes their entries in turn.

    Attributes:
        size: Number of entries; entry x is a position in the concatenation of the lanes.
        count: Number of lanes.
        bounds: First entry of each lane and the total, shape ``[count + 1]``.
    """

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.bounds = lane_bounds(size, count)
        self._even = size // count * count  # flat positions at which all lanes take part
        self._longer = np.flatnonzero(np.diff(self.bounds) > size // count)

    def entries(self, flat: Int64) -> Int64:
        """Return the entries at some positions of the interleaved sequence, in any shape."""
        place, lane = np.divmod(flat, self.count)
        if len(self._longer):
            behind = np.clip(flat - self._even, 0, len(self._longer) - 1)
            lane = np.where(flat < self._even, lane, self._longer[behind])
        found: Int64 = self.bounds[lane] + place
        return found

    def flat(self, entry: int) -> int:
        """Return the position of an entry in the interleaved sequence."""
        lane, place = lane_place(self.bounds, entry)
        if place * self.count < self._even:
            return place * self.count + lane
        return self._even + int(np.searchsorted(self._longer, lane))
