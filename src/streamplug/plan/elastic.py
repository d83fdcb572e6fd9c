"""Epochs of one order over all streams, whose global batches are the same for every world."""

from __future__ import annotations

from streamplug.plan.canonical_nodes import CanonicalNodes
from streamplug.plan.epoch import Epoch, Place, batch_positions, equal_offsets, position_owner
from streamplug.plan.ordered_samples import OrderedSamples
from streamplug.types import Int64, World


class ElasticEpoch(Epoch):
    """An epoch of one order, padded to whole global batches.

    Global batch t has the `global_batch` positions from ``start + t * global_batch`` on of the interleaved
    canonical nodes, modulo their number.
    """

    def __init__(
        self, ordered: OrderedSamples, canonical_nodes: int, global_batch: int, start: int = 0
    ) -> None:
        self._ordered, self._nodes = ordered, CanonicalNodes(ordered.size, canonical_nodes)
        self.global_batch = global_batch
        count = -(-max(ordered.size - start, 0) // global_batch)
        self.units = range(start, start + count * global_batch)

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        batch = self.units_per_step(world) // world.ranks
        starts = self.units.start + steps[:, None] * self.global_batch
        positions = (starts + batch_positions(world, batch)).reshape(-1)
        entries = self._nodes.entries(positions % self._nodes.size)
        return self._ordered.samples(entries), equal_offsets(len(steps), batch)

    def where(self, world: World, sample: int) -> list[Place]:
        start, stop, size = self.units.start, self.units.stop, self._nodes.size
        places = []
        for entry in self._ordered.entries(sample):
            first = self._nodes.position(entry)
            for position in range(first + -(-max(start - first, 0) // size) * size, stop, size):
                step, position_in_batch = divmod(position - start, self.global_batch)
                places.append(Place(step, *position_owner(world, position_in_batch)))
        return sorted(places, key=lambda place: place.step)
