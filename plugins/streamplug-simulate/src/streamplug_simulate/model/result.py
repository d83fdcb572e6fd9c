"""Results of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamplug_simulate.measures import Measures
from streamplug_simulate.model.node_cache import NodeCache
from streamplug_simulate.model.scenario import Scenario

CURVE_POINTS = 60

_MAX_NODE_CURVES = 4


@dataclass(frozen=True, slots=True)
class NodeResult:
    """Transfers and cache use of one node during the simulated steps.

    Attributes:
        bytes: Stored bytes downloaded.
        shards: Number of shard downloads.
        hits: How often a process found a shard in the cache or being downloaded.
        evictions: Number of evicted shards.
        evicted_bytes: Bytes of evicted shards.
    """

    bytes: int
    shards: int
    hits: int
    evictions: int
    evicted_bytes: int

    @classmethod
    def of(cls, node: NodeCache) -> NodeResult:
        """Return the result of a node."""
        return cls(node.bytes, node.shards, node.hits, node.evictions, node.evicted_bytes)


@dataclass(frozen=True, slots=True)
class EpochResult:
    """Times and transfers of one epoch.

    Attributes:
        epoch: Number of the epoch.
        steps: Number of steps.
        simulated: Number of steps simulated, from the first.
        bytes: Egress of the simulated steps in bytes.
        all_bytes: Egress of all steps in bytes; an estimate where not all were simulated.
        seconds: Duration of the simulated steps, including waits.
        first_batch: Seconds until every rank has its first batch.
        waited: Total seconds of waiting for later batches.
    """

    epoch: int
    steps: int
    simulated: int
    bytes: int
    all_bytes: int
    seconds: float
    first_batch: float
    waited: float


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """Result of a simulation.

    Attributes:
        urls: URLs of the streams.
        samples: Number of samples.
        shards: Number of shards.
        stored_bytes: Stored bytes of all shards.
        scenario: The simulated scenario.
        complete: Whether all steps were simulated.
        epochs: The simulated epochs.
        nodes: Result of each node.
        egress: Egress of all epochs in bytes; an upper bound where not all steps were simulated.
        cost: Price of the egress.
        quality: Mixing measures of the first epoch.
        series: Curves: ``seconds``; ``fetched`` and ``held``, bytes by node; ``steps`` and the mean
            and longest wait of each group of steps, in seconds.
        notes: Caveats of this result.
    """

    urls: tuple[str, ...]
    samples: int
    shards: int
    stored_bytes: int
    scenario: Scenario
    complete: bool
    epochs: tuple[EpochResult, ...]
    nodes: tuple[NodeResult, ...]
    egress: int
    cost: float
    quality: Measures
    series: dict[str, Any]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)


def make_series(nodes: Sequence[NodeCache], end: float, waits: Sequence[float]) -> dict[str, Any]:
    """Return the curves of a run of `end` seconds, as `SimulationResult.series`."""
    times = np.linspace(0.0, end, CURVE_POINTS + 1)
    fetched, held_bytes = (
        [_sample_log(node, times, column) for node in nodes] for column in (1, 2)
    )
    steps_per_bin = -(-len(waits) // CURVE_POINTS)
    bins = [waits[at : at + steps_per_bin] for at in range(0, len(waits), steps_per_bin)]
    return {
        "seconds": [round(float(time), 4) for time in times],
        "fetched": _node_curves(fetched),
        "held": _node_curves(held_bytes),
        "steps": [at * steps_per_bin for at in range(len(bins))],
        "mean_wait": [round(sum(some) / len(some), 5) for some in bins],
        "longest_wait": [round(max(some), 5) for some in bins],
    }


def _sample_log(node: NodeCache, times: Any, column: int) -> Any:
    log = np.array(node.log)
    return log[np.searchsorted(log[:, 0], times, side="right") - 1, column]


def _node_curves(values: list[Any]) -> dict[str, list[int]]:
    """Return curves by node; of many nodes only the minimum, mean and maximum."""
    if len(values) <= _MAX_NODE_CURVES:
        named = {f"node {number}": numbers for number, numbers in enumerate(values)}
    else:
        table = np.stack(values)
        named = {
            "least of a node": table.min(0),
            "mean": table.mean(0),
            "most of a node": table.max(0),
        }
    return {name: [int(value) for value in numbers] for name, numbers in named.items()}
