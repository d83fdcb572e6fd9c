"""Simulates a run: its processes, on their nodes, over its epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np

from streamplug.plan import Epoch
from streamplug.plan.measures import Measures, measure
from streamplug_simulate.model.chunks import Chunks
from streamplug_simulate.model.events import Events
from streamplug_simulate.model.network import Link
from streamplug_simulate.model.node_cache import Node
from streamplug_simulate.model.planned_dataset import Planned, Weighed, blocks_of
from streamplug_simulate.model.result import EpochFound, Found, NodeFound, series_of
from streamplug_simulate.model.scenario import Assumed
from streamplug_simulate.model.training import Training
from streamplug_simulate.model.worker import Worker

MOST = 200_000
"""Needs, a shard for a block of samples each, after which a simulation ends with the step under way."""

_MEASURED_STEPS = 256
_MEASURED_SAMPLES = 1 << 16


def simulate(plan: Planned, assumed: Assumed, most: int = MOST) -> Found:
    """Simulate a run.

    Args:
        plan: The data set.
        assumed: The machines, the network and the training loop.
        most: How many needs to look at; a whole run if it has less.

    Raises:
        ConfigError: If what is assumed has no meaning for this data set.
        PluginError: If there is no such shuffle.
    """
    return _Simulation(plan, assumed, most).run()


class _Simulation:
    def __init__(self, plan: Planned, assumed: Assumed, most: int) -> None:
        self._plan, self._assumed, self._most = plan, assumed, most
        self._source = plan.source_of(assumed)
        self._reader = cast(Weighed, self._source.reader)
        self._run = plan.run_of(assumed)
        self._world = plan.world_of(plan.place_of(assumed, 0, 0))
        self._events = Events()
        self._nodes = [self._node() for _ in range(assumed.nodes)]
        self._waits: list[float] = []

    def _node(self) -> Node:
        link = Link(self._events, self._assumed.bandwidth, self._assumed.latency)
        return Node(self._events, link, self._plan.shards, self._assumed.cache_limit)

    def run(self) -> Found:
        epochs: list[EpochFound] = []
        for number in range(self._assumed.epochs):
            epochs.append(self._epoch(number))
            if epochs[-1].simulated < epochs[-1].steps:
                break
        last, assumed, plan = epochs[-1], self._assumed, self._plan
        done = last.simulated == last.steps
        egress = sum(epoch.all_bytes for epoch in epochs)
        egress += (assumed.epochs - len(epochs)) * last.all_bytes
        return Found(
            urls=tuple(plan.urls),
            samples=plan.size,
            shards=len(plan.shards),
            stored_bytes=int(plan.shards.stored.sum()),
            assumed=assumed,
            complete=done and len(epochs) == assumed.epochs,
            epochs=tuple(epochs),
            nodes=tuple(NodeFound.of(node) for node in self._nodes),
            egress=egress,
            cost=egress / 1e9 * assumed.price,
            quality=self._quality(),
            series=series_of(self._nodes, self._events.now, self._waits),
            notes=tuple(self._notes(epochs)),
        )

    def _epoch(self, number: int) -> EpochFound:
        assumed, events = self._assumed, self._events
        plan = self._run.epoch(number, self._world)
        epoch = Chunks(plan, self._world, assumed.batch_size)
        began, before = events.now, self._fetched()
        fetched: list[int] = []  # when each step but the last has ended

        def enough() -> bool:
            fetched.append(self._fetched() - before)
            return self._reader.asked >= self._most

        training = Training(
            events,
            partial(self._workers, epoch),
            assumed.nodes * assumed.ranks_per_node,
            steps=epoch.steps,
            seconds=assumed.step_seconds,
            ahead=assumed.workers > 0,
            enough=enough,
        )
        while not training.ended and events.happen():
            pass
        self._waits += training.waits
        fetched.append(self._fetched() - before)
        return EpochFound(
            epoch=number,
            steps=epoch.steps,
            simulated=training.step,
            bytes=fetched[-1],
            all_bytes=self._all_bytes(number, fetched[: training.step], epoch.steps),
            seconds=events.now - began,
            first_batch=training.waits[0],
            waited=sum(training.waits[1:]),
        )

    def _fetched(self) -> int:
        return sum(node.bytes for node in self._nodes)

    def _all_bytes(self, number: int, fetched: list[int], steps: int) -> int:
        """Return the bytes that leave the storage in an epoch of which some steps were simulated.

        The rest goes on as the second half of those. No node fetches a shard twice without a limit; and in
        the first epoch, together they fetch each that an epoch reads.
        """
        done, half = len(fetched), fetched[len(fetched) // 2]
        if done == steps:
            return fetched[-1]
        rate = (fetched[-1] - half) / max(done - 1 - done // 2, 1)
        guess = int(fetched[-1] + rate * (steps - done))
        stored, size = int(self._plan.shards.stored.sum()), self._plan.size
        if number == 0:
            read = steps * self._assumed.batch_size * self._world.ranks
            guess = max(guess, int(stored * min(read / max(size, 1), 1)))
        if self._assumed.cache_limit is None:
            guess = min(guess, stored * self._assumed.nodes)
        return max(guess, fetched[-1])

    def _notes(self, epochs: Sequence[EpochFound]) -> Iterator[str]:
        last = epochs[-1]
        if last.simulated < last.steps:
            yield (
                f"Simulated: the first {last.simulated:,} of the {last.steps:,} steps of epoch {last.epoch}. "
                "What the rest of it fetches is estimated from these; later epochs fetch at most as much."
            )
        if self._plan.near:
            yield "Some of the data lies on this machine; it is simulated as if it were fetched."
        yield "Decoding and unpacking take no time here, and neither does starting processes."

    def _workers(self, epoch: Epoch, training: Training, rank: int) -> Sequence[Worker]:
        assumed, workers = self._assumed, []
        node = self._nodes[rank // assumed.ranks_per_node]
        for number in range(max(assumed.workers, 1)):
            place = self._plan.place_of(assumed, rank, number)
            world = self._plan.world_of(place)
            ahead = blocks_of(self._source, epoch, place, world, assumed.batch_size)
            permits = assumed.prefetch_factor if assumed.workers else 1
            made = partial(training.made, rank)
            workers.append(
                Worker(self._events, node, self._reader, ahead=ahead, made=made, permits=permits)
            )
        return workers

    def _quality(self) -> Measures:
        """Measure the order, in steps that are spread over the first epoch."""
        epoch, batch = self._run.epoch(0, self._world), self._assumed.batch_size
        number = min(
            _MEASURED_STEPS, max(_MEASURED_SAMPLES // (batch * self._world.ranks), 1), epoch.steps
        )
        steps = np.unique(np.linspace(0, epoch.steps - 1, number).astype(np.int64))
        return measure(epoch, self._world, batch, np.asarray(self._plan.starts), steps=steps)
