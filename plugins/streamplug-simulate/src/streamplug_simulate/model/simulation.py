"""Simulation of the processes of a run over its epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np

from streamplug.plan import Epoch
from streamplug_simulate.measures import Measures, measure
from streamplug_simulate.model.chunks import ChunkedEpoch
from streamplug_simulate.model.events import EventQueue
from streamplug_simulate.model.network import NetworkLink
from streamplug_simulate.model.node_cache import NodeCache
from streamplug_simulate.model.planned_dataset import (
    SimulatedDataset,
    WeighedReader,
    plan_process_blocks,
)
from streamplug_simulate.model.result import EpochResult, NodeResult, SimulationResult, make_series
from streamplug_simulate.model.scenario import Scenario
from streamplug_simulate.model.training import TrainingLoop
from streamplug_simulate.model.worker import Worker

MAX_NEEDS = 200_000
"""Default limit of needs (a shard for a block of samples); the simulation stops after the current step."""

_MEASURED_STEPS = 256
_MEASURED_SAMPLES = 1 << 16


def simulate(
    plan: SimulatedDataset, scenario: Scenario, max_needs: int = MAX_NEEDS
) -> SimulationResult:
    """Simulate a run.

    Args:
        plan: The data set.
        scenario: Machines, network and training loop.
        max_needs: Limit of needs; a run with fewer is simulated in full.

    Raises:
        ConfigError: If the scenario is invalid for this data set.
        PluginError: If there is no such shuffle.
    """
    return _Simulation(plan, scenario, max_needs).run()


class _Simulation:
    def __init__(self, plan: SimulatedDataset, scenario: Scenario, max_needs: int) -> None:
        self._plan, self._scenario, self._max_needs = plan, scenario, max_needs
        self._source = plan.sample_source(scenario)
        self._reader = cast(WeighedReader, self._source.reader)
        self._run = plan.training_run(scenario)
        self._world = plan.replica_world(plan.process_world(scenario, 0, 0))
        self._events = EventQueue()
        self._nodes = [self._node() for _ in range(scenario.nodes)]
        self._waits: list[float] = []

    def _node(self) -> NodeCache:
        link = NetworkLink(self._events, self._scenario.bandwidth, self._scenario.latency)
        return NodeCache(self._events, link, self._plan.shards, self._scenario.cache_limit)

    def run(self) -> SimulationResult:
        epochs: list[EpochResult] = []
        for number in range(self._scenario.epochs):
            epochs.append(self._epoch(number))
            if self._has_enough():
                break
        last, scenario, plan = epochs[-1], self._scenario, self._plan
        done = last.simulated == last.steps
        egress = sum(epoch.all_bytes for epoch in epochs)
        egress += (scenario.epochs - len(epochs)) * last.all_bytes
        return SimulationResult(
            urls=tuple(plan.urls),
            samples=plan.size,
            shards=len(plan.shards),
            stored_bytes=plan.shards.stored_bytes,
            scenario=scenario,
            complete=done and len(epochs) == scenario.epochs,
            epochs=tuple(epochs),
            nodes=tuple(NodeResult.of(node) for node in self._nodes),
            egress=egress,
            cost=egress / 1e9 * scenario.price,
            quality=self._quality(),
            series=make_series(self._nodes, self._events.now, self._waits),
            notes=tuple(self._notes(epochs)),
        )

    def _epoch(self, number: int) -> EpochResult:
        scenario, events = self._scenario, self._events
        plan = self._run.epoch(number, self._world)
        epoch, steps = ChunkedEpoch(plan, self._world), plan.steps(self._world)
        began, before = events.now, self._fetched()
        fetched: list[int] = []  # when each step but the last has ended

        def enough() -> bool:
            fetched.append(self._fetched() - before)
            return self._has_enough()

        training = TrainingLoop(
            events,
            partial(self._workers, epoch),
            scenario.nodes * scenario.ranks_per_node,
            steps=steps,
            seconds=scenario.step_seconds,
            ahead=scenario.workers > 0,
            enough=enough,
        )
        while not training.ended and events.run_next():
            pass
        self._waits += training.waits
        fetched.append(self._fetched() - before)
        return EpochResult(
            epoch=number,
            steps=steps,
            simulated=training.step,
            bytes=fetched[-1],
            all_bytes=self._all_bytes(number, fetched[: training.step], steps),
            seconds=events.now - began,
            first_batch=training.waits[0],
            waited=sum(training.waits[1:]),
        )

    def _has_enough(self) -> bool:
        return self._reader.need_count >= self._max_needs

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
        stored, size = self._plan.shards.stored_bytes, self._plan.size
        if number == 0:
            read = steps * self._scenario.batch_size * self._world.ranks
            guess = max(guess, int(stored * min(read / max(size, 1), 1)))
        if self._scenario.cache_limit is None:
            guess = min(guess, stored * self._scenario.nodes)
        return max(guess, fetched[-1])

    def _notes(self, epochs: Sequence[EpochResult]) -> Iterator[str]:
        last = epochs[-1]
        if last.simulated < last.steps:
            yield (
                f"Simulated: the first {last.simulated:,} of the {last.steps:,} steps of epoch {last.epoch}. "
                "What the rest of it fetches is estimated from these; later epochs fetch at most as much."
            )
        elif len(epochs) < self._scenario.epochs:
            yield (
                f"Simulated: the first {len(epochs):,} of the {self._scenario.epochs:,} epochs. Later ones "
                "fetch at most as much as the last of these."
            )
        if self._plan.is_local:
            yield "Data on this machine is simulated as if it were downloaded."
        yield "Decoding, decompressing and starting processes take no time in the simulation."

    def _workers(self, epoch: Epoch, training: TrainingLoop, rank: int) -> Sequence[Worker]:
        scenario, workers = self._scenario, []
        node = self._nodes[rank // scenario.ranks_per_node]
        for number in range(max(scenario.workers, 1)):
            place = self._plan.process_world(scenario, rank, number)
            world = self._plan.replica_world(place)
            ahead = plan_process_blocks(self._source, epoch, place, world)
            initial_batches = scenario.prefetch_factor if scenario.workers else 1
            on_batch = partial(training.on_batch, rank)
            workers.append(
                Worker(
                    self._events,
                    node,
                    self._reader,
                    ahead=ahead,
                    on_batch=on_batch,
                    initial_batches=initial_batches,
                )
            )
        return workers

    def _quality(self) -> Measures:
        """Measure the order, in steps that are spread over the first epoch."""
        epoch, batch = self._run.epoch(0, self._world), self._scenario.batch_size
        total = epoch.steps(self._world)
        number = min(
            _MEASURED_STEPS, max(_MEASURED_SAMPLES // (batch * self._world.ranks), 1), total
        )
        steps = np.unique(np.linspace(0, total - 1, number).astype(np.int64))
        return measure(epoch, self._world, np.asarray(self._plan.starts), steps=steps)
