"""Partition: which samples of an epoch's order belong to which step, rank and place in a batch.

An order has ``size`` entries in ``C`` canonical nodes ("lanes"); entry x is a position in the
concatenation of the lanes. A partition interleaves the lanes and deals that sequence to nodes, ranks and
places; each maps (rank, step, place) to an entry in closed form, and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from streamplug.plan.lanes import Lanes
from streamplug.types import Int64, World


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is handed out: at which step, by which rank, at which place in its batch."""

    step: int
    rank: int
    place: int


class Partition(ABC):
    """Deals the entries of an order.

    Attributes:
        steps: Number of global batches, the last of which may be filled up or short.
        per_rank: Number of samples that each rank gets.
    """

    steps: int
    per_rank: int

    @abstractmethod
    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the entries of a rank's batches, -1 where a batch is short.

        Args:
            world: Says which rank.
            batch: Samples per batch of one rank.
            steps: Which global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``.
        """

    @abstractmethod
    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        """Return where an entry is handed out, in the order of steps; more than once if it fills up."""


def dealt(world: World, batch: int) -> Int64:
    """Return which places of a global batch are those of a rank, in order, shape ``[batch]``.

    Node n of P takes every P-th place from the n-th on, so that it keeps to its own lanes, and its
    rank r of R every R-th of those.
    """
    return world.node + world.nodes * (
        world.rank_of_node + world.ranks_per_node * np.arange(batch, dtype=np.int64)
    )


def dealt_to(world: World, place: int) -> tuple[int, int]:
    """Return which rank gets a place of a global batch, and as its so-many-th."""
    rest, node = divmod(place, world.nodes)
    number, rank = divmod(rest, world.ranks_per_node)
    return node * world.ranks_per_node + rank, number


class Elastic(Partition):
    """Fills an epoch up to whole global batches, in the same way for every world.

    Global batch t is positions ``[t * G, (t + 1) * G)`` of the interleaved lanes, starting again from 0
    behind the last.
    """

    def __init__(self, size: int, lanes: int, world: World, batch: int) -> None:
        """Deal `size` entries, at least one."""
        self._lanes = Lanes(size, lanes)
        self._global = batch * world.ranks
        self.steps = -(-size // self._global)
        self.per_rank = self.steps * batch

    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        flat = steps[:, None] * self._global + dealt(world, batch)
        return self._lanes.entries(flat % self._lanes.size)

    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        found = []
        for flat in range(self._lanes.flat(entry), self.steps * self._global, self._lanes.size):
            step, place = divmod(flat, self._global)
            found.append(Place(step, *dealt_to(world, place)))
        return found


def worker_steps(world: World, first: int, steps: int) -> range:
    """Return the steps that a worker serves, from step `first` on, of `steps` in the epoch."""
    return range(first + world.worker, steps, world.workers_per_rank)
