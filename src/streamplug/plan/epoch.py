"""The order of one epoch over all ranks: from a flat position to a sample id.

The lanes of an order are interleaved: flat position ``q`` is position ``q // C`` of lane ``q % C``.
A lane one sample short repeats its last. The epoch is filled up to whole global batches by
starting again from its beginning. None of this depends on how many machines there are.
"""

from __future__ import annotations

import numpy as np

from streamplug.interfaces import Order
from streamplug.types import Int64


def period(size: int, canonical_nodes: int) -> int:
    """Return the flat positions after which an epoch starts again from its beginning."""
    return -(-size // canonical_nodes) * canonical_nodes


def steps_per_epoch(size: int, canonical_nodes: int, global_batch: int) -> int:
    """Return the number of global batches that hold an epoch."""
    return -(-period(size, canonical_nodes) // global_batch)


class Epoch:
    """One epoch of a data set.

    Attributes:
        steps: Number of global batches.
    """

    def __init__(self, order: Order, size: int, canonical_nodes: int, global_batch: int) -> None:
        """Describe an epoch of `size` samples, which must be at least `canonical_nodes`."""
        self._order = order
        self._lanes = canonical_nodes
        self._lengths = np.diff(
            [size * lane // canonical_nodes for lane in range(canonical_nodes + 1)]
        ).astype(np.int64)
        self._period = period(size, canonical_nodes)
        self.steps = steps_per_epoch(size, canonical_nodes, global_batch)

    def ids(self, positions: Int64) -> Int64:
        """Return the sample ids at flat positions, in any shape."""
        flat = positions.reshape(-1) % self._period
        lane, place = flat % self._lanes, flat // self._lanes
        place = np.minimum(place, self._lengths[lane] - 1)
        found = np.empty_like(flat)
        for number in np.unique(lane).tolist():
            here = lane == number
            found[here] = self._order.at(number, place[here])
        return found.reshape(positions.shape)
