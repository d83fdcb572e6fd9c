"""Sample ids of an epoch by step and rank, and the steps and ranks of a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from streamplug.errors import PluginError
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.plan.partition import Partition, Place
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
            world: The world, with the rank.
            batch: Samples per batch of one rank.
            steps: Global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``; -1 at the end of a short batch.
        """

    @abstractmethod
    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        """Return the places at which a sample is read, sorted by step."""

    def rows_per_step(self, batch: int) -> int:
        """Return the approximate number of samples of a rank's batch."""
        return batch

    def length(self, world: World, batch: int) -> int:
        """Return the number of samples of a rank."""
        return int(np.count_nonzero(self.ids(world, batch, np.arange(self.steps)) >= 0))


class PartitionedEpoch(Epoch):
    """Epoch of one order over all streams, split by a partition (``batching_method="random"``)."""

    def __init__(self, ordered: OrderedSamples, partition: Partition) -> None:
        self._ordered, self._partition = ordered, partition
        self.steps = partition.steps

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        entries = self._partition.entries(world, batch, steps)
        check_ids(entries, len(steps), self._ordered.size, self._partition)
        return self._ordered.samples(entries)

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        places = []
        for entry in self._ordered.entries(sample):
            places += self._partition.places(world, batch, entry)
        return sorted(places, key=lambda place: place.step)


def check_ids(ids: Int64, steps: int, size: int, source: object) -> None:
    """Raise `PluginError` unless `source` returned integers in ``[-1, size)``, one row for each step."""
    result: object = ids  # unchecked so far
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    if not isinstance(result, np.ndarray):
        raise PluginError(f"{kind} returned {type(result).__name__}: expected an array of integers")
    if ids.dtype.kind not in "iu" or ids.ndim != 2 or len(ids) != steps:
        raise PluginError(
            f"{kind} returned {ids.dtype} of shape {ids.shape}: expected integers of shape ({steps}, n)"
        )
    if ids.size and (ids.min() < -1 or ids.max() >= size):
        wrong = int(ids[(ids < -1) | (ids >= size)][0])
        raise PluginError(
            f"{kind} returned {wrong}: expected numbers of samples in [0, {size}), or -1 where a batch is "
            "short"
        )
