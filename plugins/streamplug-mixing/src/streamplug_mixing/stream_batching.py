"""Epochs whose batches combine the orders of single streams by a schedule.

Streams are looked up by slot, and their samples by number, so every step costs the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Place, batch_positions, equal_offsets, position_owner
from streamplug.types import Int64, World
from streamplug_mixing.stream_samples import StreamSamples


class StreamSchedule(Protocol):
    """Assignment of slots to streams."""

    def streams_at(self, slots: Int64) -> tuple[Int64, Int64]:
        """Return the stream of each slot, and the number of turns of that stream before it."""

    def slot_of(self, stream: int, turn: int) -> int:
        """Return the slot of a stream's n-th turn, counted from 0."""

    def turns_before(self, slot: int) -> list[int]:
        """Return the number of turns of each stream before a slot."""


class ScheduledEpoch(Epoch):
    """Epoch whose slots a schedule assigns to streams; a slot is `unit` samples of one stream.

    The global batch is a multiple of the unit. The last step may extend past `slots`. `first_ids` has the
    first sample id of each stream, and the total. `first_step` is the step of its epoch with which the slots
    begin.
    """

    def __init__(
        self,
        schedule: StreamSchedule,
        samples: Sequence[StreamSamples],
        first_ids: Sequence[int],
        *,
        unit: int,
        global_batch: int,
        slots: range,
        first_step: int = 0,
    ) -> None:
        if global_batch % unit:
            raise ConfigError(
                f"batching_method='device_per_stream': a global batch of {global_batch} is no multiple of "
                f"{unit}, the batch size with which the run began"
            )
        self._schedule, self._samples, self._first_ids = schedule, samples, first_ids
        self._unit, self._first_slot = unit, slots.start
        self._slots_per_step, self.global_batch = global_batch // unit, global_batch
        self._num_steps = -(-len(slots) // self._slots_per_step)
        start = first_step * global_batch
        self.units = range(start, start + self._num_steps * global_batch)

    def where(self, world: World, sample: int) -> list[Place]:
        stream = int(np.searchsorted(self._first_ids, sample, side="right")) - 1
        end_slot = self._first_slot + self._num_steps * self._slots_per_step
        first, end = (
            self._schedule.turns_before(slot)[stream] * self._unit
            for slot in (self._first_slot, end_slot)
        )
        places = []
        for number in self._samples[stream].numbers(sample, first, end):
            turn, offset = divmod(number, self._unit)
            slot = self._schedule.slot_of(stream, turn) - self._first_slot
            step, slot_in_step = divmod(slot, self._slots_per_step)
            position = slot_in_step * self._unit + offset
            places.append(Place(step, *self._owner(world, step, position)))
        return sorted(places, key=lambda place: place.step)

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        batch = self.units_per_step(world) // world.ranks
        slots, offsets = np.divmod(self._positions(world, batch, steps), self._unit)
        slots += self._first_slot + steps[:, None] * self._slots_per_step
        streams, turns = self._schedule.streams_at(slots.reshape(-1))
        numbers = turns * self._unit + offsets.reshape(-1)
        ids = np.empty_like(numbers)
        for stream in np.unique(streams).tolist():
            of_stream = streams == stream
            ids[of_stream] = self._samples[stream].samples(numbers[of_stream])
        return ids, equal_offsets(len(steps), batch)

    @abstractmethod
    def _positions(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the positions in each global batch that a rank reads, shape ``[n, batch]``."""

    @abstractmethod
    def _owner(self, world: World, step: int, position: int) -> tuple[int, int]:
        """Return the rank that reads a position of a global batch, and the position in the rank's batch."""


class PerStreamEpoch(ScheduledEpoch):
    """Epoch of global batches of one stream each: a slot is a step."""

    def _positions(self, world: World, batch: int, steps: Int64) -> Int64:
        return np.broadcast_to(batch_positions(world, batch), (len(steps), batch))

    def _owner(self, world: World, step: int, position: int) -> tuple[int, int]:
        return position_owner(world, position)


class MixedEpoch(ScheduledEpoch):
    """Epoch of global batches of all streams, in slots of one sample or of one rank's batch.

    A node gets slots of its own canonical nodes up to its share, and assigns them to its ranks stream by
    stream, so that all ranks have the same mixture.
    """

    def _positions(self, world: World, batch: int, steps: Int64) -> Int64:
        first = world.rank_of_node * batch
        rows = [
            positions[world.node, first : first + batch]
            for positions in self._positions_by_node(world, steps)
        ]
        return np.sort(np.array(rows, np.int64).reshape(-1, batch))

    def _owner(self, world: World, step: int, position: int) -> tuple[int, int]:
        (positions,) = self._positions_by_node(world, np.array([step]))
        batch = self.global_batch // world.ranks
        rank = int(np.flatnonzero(positions.reshape(-1) == position)[0]) // batch
        of_rank = positions.reshape(-1, batch)[rank]
        return rank, int((of_rank < position).sum())

    def _positions_by_node(self, world: World, steps: Int64) -> Iterator[Int64]:
        """Yield the positions of each node in each step, rank by rank, shape ``[nodes, n]``."""
        slots_in_step = np.arange(self._slots_per_step)
        slots = self._first_slot + steps[:, None] * self._slots_per_step + slots_in_step
        streams, turns = self._schedule.streams_at(slots.reshape(-1))
        nodes = np.empty_like(turns)
        for stream in np.unique(streams).tolist():
            of_stream = streams == stream
            numbers = turns[of_stream] * self._unit
            nodes[of_stream] = self._samples[stream].canonical_nodes(numbers) % world.nodes
        # Slots that do not divide evenly among the nodes ignore canonical nodes.
        shared = self._slots_per_step % world.nodes
        for step_streams, step_nodes in zip(
            streams.reshape(slots.shape), nodes.reshape(slots.shape)
        ):
            order = slots_in_step if shared else assign_slots(step_streams, step_nodes, world)
            positions = order[:, None] * self._unit + np.arange(self._unit)
            yield positions.reshape(world.nodes, -1)


def assign_slots(streams: Int64, preferred_nodes: Int64, world: World) -> Int64:
    """Return the slots of a step by node, and within a node by rank where they divide evenly.

    `streams` and `preferred_nodes` (the nodes that hold the data) have shape ``[slots]``, a multiple of the
    nodes.
    """
    nodes, ranks = world.nodes, world.ranks_per_node
    share = len(preferred_nodes) // nodes
    order = np.argsort(preferred_nodes, kind="stable")
    counts = np.bincount(preferred_nodes, minlength=nodes)
    index_in_node = np.arange(len(order)) - (np.cumsum(counts) - counts)[preferred_nodes[order]]
    owner = preferred_nodes.copy()
    surplus = order[index_in_node >= share]
    owner[surplus] = np.repeat(np.arange(nodes), share - np.minimum(counts, share))
    by_node = np.lexsort((streams, owner)).reshape(nodes, share)
    if share % ranks == 0:  # round robin, so that each rank has its part of every stream
        by_node = by_node.reshape(nodes, -1, ranks).transpose(0, 2, 1)
    return by_node.reshape(-1)
