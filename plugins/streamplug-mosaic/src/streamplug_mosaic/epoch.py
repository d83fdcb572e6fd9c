"""Epochs of mosaicml-streaming, whose last batches may be short."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streamplug.plan import Epoch, OrderedSamples, Place, equal_offsets
from streamplug.types import Int64, World
from streamplug_mosaic.partition import Partition, padded_size


class PartitionedEpoch(Epoch):
    """An epoch of one order over all streams, partitioned anew for each world in which it is read."""

    def __init__(
        self,
        ordered: OrderedSamples,
        canonical_nodes: int,
        global_batch: int,
        make_partition: Callable[[World, int], Partition],
    ) -> None:
        """Partition an order; `make_partition` takes a world and the samples of a batch of one rank."""
        self._ordered, self.global_batch = ordered, global_batch
        self._make_partition = lru_cache(maxsize=4)(make_partition)
        # As in every world that is served: its nodes or ranks divide the global batch, so that what it
        # repeats for them adds no step.
        steps = -(-padded_size(ordered.size, canonical_nodes) // global_batch)
        self.units = range(steps * global_batch)

    def _partition(self, world: World) -> Partition:
        batch = self.units_per_step(world) // world.ranks
        return self._make_partition(World(world.nodes, world.ranks_per_node), batch)

    def steps(self, world: World) -> int:
        return self._partition(world).steps

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        entries, offsets = drop_missing(self._partition(world).entries(world, steps))
        return self._ordered.samples(entries), offsets

    def where(self, world: World, sample: int) -> list[Place]:
        partition = self._partition(world)
        places = [
            place for entry in self._ordered.entries(sample) for place in partition.places(entry)
        ]
        return sorted(places, key=lambda place: place.step)


class ArrayEpoch(Epoch):
    """An epoch held as an array of all its sample ids: 8 bytes per sample, on every rank.

    In another world than that for which it was made, rank r reads the samples of a global batch from ``r *
    batch`` on.
    """

    def __init__(self, ids: Int64) -> None:
        """Hold the ids of all steps, shape ``[steps, ranks, batch]``, -1 where there is none."""
        steps, ranks, batch = ids.shape
        self.global_batch = ranks * batch
        self.units = range(steps * self.global_batch)
        self._ids = ids.reshape(steps, self.global_batch)

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        batch = self.units_per_step(world) // world.ranks
        return drop_missing(self._ids[steps, world.rank * batch : (world.rank + 1) * batch])

    def where(self, world: World, sample: int) -> list[Place]:
        batch = self.units_per_step(world) // world.ranks
        found = np.argwhere(self._ids == sample).tolist()
        return [Place(step, *divmod(position, batch)) for step, position in found]


def drop_missing(rows: Int64) -> tuple[Int64, Int64]:
    """Return the numbers of batches, shape ``[n, batch]``, without those of -1, and the batches' offsets."""
    is_there = rows >= 0
    if is_there.all():
        return rows.reshape(-1), equal_offsets(*rows.shape)
    return rows[is_there], np.concatenate([[0], np.cumsum(is_there.sum(1))])
