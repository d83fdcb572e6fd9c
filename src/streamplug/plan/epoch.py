"""One epoch over all ranks: from a step and a rank to sample ids, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from streamplug.interfaces import Order
from streamplug.plan.partition import Partition, Place
from streamplug.plan.selection import Selection
from streamplug.types import Int64, World


class Epoch(ABC):
    """One epoch of a run.

    Attributes:
        steps: Number of global batches.
    """

    steps: int

    @abstractmethod
    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the sample ids of a rank's batches.

        Args:
            world: Says which rank.
            batch: Samples per batch of one rank.
            steps: Which global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``; -1 at the end of a batch that is short.
        """

    @abstractmethod
    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        """Return where a sample is handed out, in the order of steps."""


class Feed(Epoch):
    """A selection of samples, in one order, dealt by one partition."""

    def __init__(
        self, selection: Selection, order: Order, bounds: Int64, partition: Partition
    ) -> None:
        """Put them together; `bounds` are those of the order's lanes."""
        self._selection, self._order, self._partition = selection, order, partition
        self._bounds = bounds
        self.steps = partition.steps

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        entries = self._partition.entries(world, batch, steps)
        flat = entries.reshape(-1)
        found = np.full_like(flat, -1)
        lanes = np.searchsorted(self._bounds, flat, side="right") - 1
        for lane in np.unique(lanes[flat >= 0]).tolist():
            here = (lanes == lane) & (flat >= 0)
            found[here] = self._order.at(lane, flat[here] - self._bounds[lane])
        taken = found >= 0
        found[taken] = self._selection.samples(found[taken])
        return found.reshape(entries.shape)

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        found = []
        for entry in self._selection.entries(sample):
            lane, position = self._order.find(entry)
            at = int(self._bounds[lane]) + position
            found += self._partition.places(world, batch, at)
        return sorted(found, key=lambda place: place.step)
