"""Batches made of the orders of single streams, by a schedule of streams.

A schedule says which stream has a slot, and as its so-many-th turn; a source says which sample that is. Both
are asked by number, so a step in the middle of a run costs what the first one does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from streamplug.plan.epoch import Epoch
from streamplug.plan.partition import Place, dealt, dealt_to
from streamplug.plan.source import Source
from streamplug.types import Int64, World


class Schedule(Protocol):
    """Which stream has which slot."""

    def turn(self, slots: Int64) -> tuple[Int64, Int64]:
        """Return which stream has each slot, and how many turns that stream had before."""

    def slot(self, stream: int, turn: int) -> int:
        """Return the slot of a stream's so-many-th turn."""

    def before(self, slot: int) -> list[int]:
        """Return how many turns each stream has before a slot."""


class Scheduled(Epoch):
    """An epoch whose slots a schedule gives to streams; a slot is a unit of samples of one stream."""

    def __init__(
        self,
        schedule: Schedule,
        sources: Sequence[Source],
        firsts: Sequence[int],
        *,
        unit: int,
        global_batch: int,
        slots: range,
    ) -> None:
        """Put a schedule and the streams' sources together.

        Args:
            schedule: Which stream has which slot.
            sources: The samples of each stream.
            firsts: First sample id of each stream, and the total.
            unit: Samples of a slot; the global batch is a multiple of it.
            global_batch: Samples per step.
            slots: Slots of this epoch; the last step may go on behind them.
        """
        self._schedule, self._sources, self._firsts = schedule, sources, firsts
        self._unit, self._global, self._first = unit, global_batch, slots.start
        self._slots = global_batch // unit  # per step
        self.steps = -(-len(slots) // self._slots)

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        stream = int(np.searchsorted(self._firsts, sample, side="right")) - 1
        last = self._first + self.steps * self._slots
        turns = (self._schedule.before(slot)[stream] for slot in (self._first, last))
        first, end = (turn * self._unit for turn in turns)
        found = []
        for number in self._sources[stream].numbers(sample, first, end):
            turn, offset = divmod(number, self._unit)
            step, slot = divmod(self._schedule.slot(stream, turn) - self._first, self._slots)
            rank, place = self._handed_to(world, batch, step, slot * self._unit + offset)
            found.append(Place(step, rank, place))
        return sorted(found, key=lambda place: place.step)

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        places = self._places(world, batch, steps)
        slots, offsets = np.divmod(places, self._unit)
        slots += self._first + steps[:, None] * self._slots
        streams, turns = self._schedule.turn(slots.reshape(-1))
        numbers = turns * self._unit + offsets.reshape(-1)
        found = np.empty_like(numbers)
        for stream in np.unique(streams).tolist():
            here = streams == stream
            found[here] = self._sources[stream].samples(numbers[here])
        return found.reshape(len(steps), batch)

    @abstractmethod
    def _places(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return which places of each global batch are those of a rank, shape ``[n, batch]``."""

    @abstractmethod
    def _handed_to(self, world: World, batch: int, step: int, place: int) -> tuple[int, int]:
        """Return which rank gets a place of a global batch, and as its so-many-th."""


class PerStream(Scheduled):
    """Every global batch is of one stream: a slot is a step."""

    def _places(self, world: World, batch: int, steps: Int64) -> Int64:
        return np.broadcast_to(dealt(world, batch), (len(steps), batch))

    def _handed_to(self, world: World, batch: int, step: int, place: int) -> tuple[int, int]:
        return dealt_to(world, place)


class Mixed(Scheduled):
    """Every global batch is of all streams, in slots of one sample or of one rank's batch.

    A node gets slots of its own lanes as far as they are its share, and deals them to its ranks stream by
    stream, so that those are mixed alike.
    """

    def _places(self, world: World, batch: int, steps: Int64) -> Int64:
        first = world.rank_of_node * batch
        own = [places[world.node, first : first + batch] for places in self._by_node(world, steps)]
        return np.sort(np.array(own, np.int64).reshape(-1, batch))

    def _handed_to(self, world: World, batch: int, step: int, place: int) -> tuple[int, int]:
        (places,) = self._by_node(world, np.array([step]))
        rank = int(np.flatnonzero(places.reshape(-1) == place)[0]) // batch
        own = places.reshape(-1, batch)[rank]
        return rank, int((own < place).sum())

    def _by_node(self, world: World, steps: Int64) -> Iterator[Int64]:
        """Yield the places of each node in each step, rank by rank, shape ``[nodes, n]``."""
        slots = self._first + steps[:, None] * self._slots + np.arange(self._slots)
        streams, turns = self._schedule.turn(slots.reshape(-1))
        lanes = np.empty_like(turns)
        for stream in np.unique(streams).tolist():
            here = streams == stream
            lanes[here] = self._sources[stream].lanes(turns[here] * self._unit)
        wanted = lanes % world.nodes
        for stream, node in zip(streams.reshape(slots.shape), wanted.reshape(slots.shape)):
            # Slots that two nodes share have no lane to keep to.
            shared = self._slots % world.nodes
            order = np.arange(self._slots) if shared else deal(stream, node, world)
            places = order[:, None] * self._unit + np.arange(self._unit)
            yield places.reshape(world.nodes, -1)


def deal(streams: Int64, wanted: Int64, world: World) -> Int64:
    """Deal the slots of a step to nodes, and those of a node to its ranks.

    Args:
        streams: Stream of each slot, shape ``[slots]``; a multiple of the nodes.
        wanted: Which node each slot would rather go to.
        world: How many nodes and ranks there are.

    Returns:
        The slots, node by node, those of a rank together where they can be dealt evenly.
    """
    nodes, ranks = world.nodes, world.ranks_per_node
    share = len(wanted) // nodes
    order = np.argsort(wanted, kind="stable")
    counts = np.bincount(wanted, minlength=nodes)
    number = np.arange(len(order)) - (np.cumsum(counts) - counts)[wanted[order]]
    owner = wanted.copy()
    spare = order[number >= share]
    owner[spare] = np.repeat(np.arange(nodes), share - np.minimum(counts, share))
    by_node = np.lexsort((streams, owner)).reshape(nodes, share)
    if share % ranks == 0:  # in turn, so that each rank has its part of every stream
        by_node = by_node.reshape(nodes, -1, ranks).transpose(0, 2, 1)
    return by_node.reshape(-1)
