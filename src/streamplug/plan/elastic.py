"""The default order: one over all streams, whose global batches are the same for every world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from streamplug.interfaces import canonical_node_bounds, locate_entry
from streamplug.plan.epoch import (
    Epoch,
    JoinedEpoch,
    Place,
    batch_positions,
    equal_offsets,
    position_owner,
)
from streamplug.plan.planner import Planner
from streamplug.plan.segment import Position, Segment
from streamplug.plan.selection import OrderedSamples
from streamplug.plan.streams import Streams
from streamplug.types import Int64, World


class CanonicalNodes:
    """Split of ``[0, size)`` into `count` canonical nodes at `bounds`, and their interleaved sequence.

    Position ``f`` of that of C canonical nodes is position ``f // C`` of canonical node ``f % C`` until the
    shortest one ends. Sizes differ by one at most; the last entries of longer ones come at the end.
    """

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.bounds = canonical_node_bounds(size, count)
        self._even = size // count * count  # end of the positions with all canonical nodes
        self._longer = np.flatnonzero(np.diff(self.bounds) > size // count)

    def entries(self, positions: Int64) -> Int64:
        offset, canonical_node = np.divmod(positions, self.count)
        if len(self._longer):
            excess = np.clip(positions - self._even, 0, len(self._longer) - 1)
            canonical_node = np.where(positions < self._even, canonical_node, self._longer[excess])
        entries: Int64 = self.bounds[canonical_node] + offset
        return entries

    def position(self, entry: int) -> int:
        canonical_node, offset = locate_entry(self.bounds, entry)
        if offset * self.count < self._even:
            return offset * self.count + canonical_node
        return self._even + int(np.searchsorted(self._longer, canonical_node))


class ElasticEpoch(Epoch):
    """An epoch of one order, padded to whole global batches.

    The epoch is padded before it is divided among ranks: with padded shares of ranks, as in `orig` and
    `relaxed` of mosaicml-streaming, the world decides which samples are repeated.

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


class ElasticPlanner(Planner):
    """Planner of epochs of one order over all streams, whose global batches may change their size."""

    def __init__(
        self, streams: Streams, plan_proportions: Callable[[], Planner] | None = None
    ) -> None:
        """Plan epochs.

        Args:
            streams: The streams.
            plan_proportions: Makes the planner of this run with other proportions of its streams, which is
                needed where a segment has some; it must pickle. None if they cannot change.
        """
        super().__init__(streams)
        self._plan_proportions = plan_proportions

    @cached_property
    def _of_proportions(self) -> Planner:
        if self._plan_proportions is None:
            raise self._no_proportions()
        return self._plan_proportions()

    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        if _has_proportions(segments):
            return self._of_proportions.epoch(number, segments)
        nodes, start = segments[0].canonical_nodes, Position(number)
        ordered = self.streams.of(segments[0]).epoch(number, nodes)
        held = [segment for segment in segments if segment.start <= start][-1]
        parts = [ElasticEpoch(ordered, nodes, held.global_batch)]
        for segment in segments:
            is_within = start < segment.start and segment.start.epoch == number
            if is_within and segment.global_batch != parts[-1].global_batch:
                done = segment.start.done
                parts.append(ElasticEpoch(ordered, nodes, segment.global_batch, done))
        return parts[0] if len(parts) == 1 else JoinedEpoch(parts)

    # -- segments --------------------------------------------------------------------

    def position_of(self, step: int, segments: Sequence[Segment]) -> Position:
        return self._of_proportions.position_of(step, segments)

    def with_proportions(
        self,
        segments: Sequence[Segment],
        position: Position,
        proportions: Sequence[float],
    ) -> list[Segment]:
        return self._of_proportions.with_proportions(segments, position, proportions)

    def with_global_batch(
        self, segments: Sequence[Segment], position: Position, global_batch: int
    ) -> list[Segment]:
        if _has_proportions(segments):
            return super().with_global_batch(segments, position, global_batch)
        new = replace(segments[-1], start=position, global_batch=global_batch)
        return [*(segment for segment in segments if segment.start < position), new]


def _has_proportions(segments: Sequence[Segment]) -> bool:
    return any(segment.proportions is not None for segment in segments)
