"""Epoch: from a step and a rank to sample ids, and back; and the epoch of one order."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamplug.plan.feed import Feed
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
            world: Says which rank.
            batch: Samples per batch of one rank.
            steps: Which global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``; -1 at the end of a batch that is short.
        """

    @abstractmethod
    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        """Return where a sample is handed out, in the order of steps."""


class Dealt(Epoch):
    """One order over all streams, dealt by one partition: ``batching_method="random"``."""

    def __init__(self, feed: Feed, partition: Partition) -> None:
        """Deal a feed."""
        self._feed, self._partition = feed, partition
        self.steps = partition.steps

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        return self._feed.samples(self._partition.entries(world, batch, steps))

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        found = []
        for entry in self._feed.entries(sample):
            found += self._partition.places(world, batch, entry)
        return sorted(found, key=lambda place: place.step)
