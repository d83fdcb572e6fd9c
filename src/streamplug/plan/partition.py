"""Partition of an epoch's order among steps, ranks and positions in a batch.

An entry is a position in the concatenation of the canonical nodes of an order. A partition maps (rank,
step, position) to an entry of the interleaved canonical nodes in closed form, and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from streamplug.plan.canonical_nodes import CanonicalNodes
from streamplug.types import Int64, World


@dataclass(frozen=True, slots=True)
class Place:
    """Step, rank and position in the rank's batch at which an entry is read."""

    step: int
    rank: int
    position: int


class Partition(ABC):
    """Split of the entries of an order among ranks.

    Attributes:
        steps: Number of global batches; the last one may be padded or short.
        per_rank: Number of samples of each rank, or of the one that reads most.
    """

    steps: int
    per_rank: int

    @abstractmethod
    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the entries of a rank's batches, -1 where a batch is short.

        Args:
            world: The world, with the rank.
            batch: Samples per batch of one rank.
            steps: Global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``.
        """

    @abstractmethod
    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        """Return the places of an entry, sorted by step; several if it is repeated."""


def batch_positions(world: World, batch: int) -> Int64:
    """Return the sorted positions in a global batch that a rank reads, shape ``[batch]``.

    Node n of P takes every P-th position from n on, which keeps it on its own canonical nodes; its rank r
    of R takes every R-th of those.
    """
    return world.node + world.nodes * (
        world.rank_of_node + world.ranks_per_node * np.arange(batch, dtype=np.int64)
    )


def position_owner(world: World, position: int) -> tuple[int, int]:
    """Return the rank that reads a position of a global batch, and the position in the rank's batch."""
    rest, node = divmod(position, world.nodes)
    own_position, rank = divmod(rest, world.ranks_per_node)
    return node * world.ranks_per_node + rank, own_position


class ElasticPartition(Partition):
    """Partition that is the same for every world, padded to whole global batches.

    Global batch t has positions ``[t * G, (t + 1) * G)`` of the interleaved canonical nodes, modulo their
    number.
    """

    def __init__(self, size: int, canonical_nodes: int, world: World, batch: int) -> None:
        self._nodes = CanonicalNodes(size, canonical_nodes)
        self._global_batch = batch * world.ranks
        self.steps = -(-size // self._global_batch)
        self.per_rank = self.steps * batch

    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        positions = steps[:, None] * self._global_batch + batch_positions(world, batch)
        return self._nodes.entries(positions % self._nodes.size)

    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        first, end = self._nodes.position(entry), self.steps * self._global_batch
        places = []
        for position in range(first, end, self._nodes.size):
            step, position_in_batch = divmod(position, self._global_batch)
            places.append(Place(step, *position_owner(world, position_in_batch)))
        return places


def worker_steps(world: World, first: int, steps: int) -> range:
    """Return the steps in ``range(first, steps)`` that a worker reads."""
    return range(first + world.worker, steps, world.workers_per_rank)
