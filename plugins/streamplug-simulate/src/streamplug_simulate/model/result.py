"""Found: what a simulation tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamplug.plan.measures import Measures
from streamplug_simulate.model.node_cache import Node
from streamplug_simulate.model.scenario import Assumed

POINTS = 60
"""Points of each curve."""

_LINES = 4


@dataclass(frozen=True, slots=True)
class NodeFound:
    """What one node does, in what was simulated.

    Attributes:
        bytes: Bytes that it fetches, as they are stored.
        shards: Shards that it fetches, each as often as that happens.
        hits: How often a process finds a shard in the cache, or on its way there.
        evictions: Shards that go from the cache to make room.
        evicted_bytes: Their bytes.
    """

    bytes: int
    shards: int
    hits: int
    evictions: int
    evicted_bytes: int

    @classmethod
    def of(cls, node: Node) -> NodeFound:
        """Describe a node."""
        return cls(node.bytes, node.shards, node.hits, node.evictions, node.evicted)


@dataclass(frozen=True, slots=True)
class EpochFound:
    """One epoch.

    Attributes:
        epoch: Which.
        steps: Its steps.
        simulated: How many of them were simulated, from the first on.
        bytes: Bytes that leave the storage in these.
        all_bytes: Bytes that leave the storage in all its steps: estimated where not all were simulated.
        seconds: What the simulated steps take, waiting included.
        first_batch: Seconds until all ranks have their first batch.
        waited: Seconds that the later steps were waited for.
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
class Found:
    """What a simulation tells.

    Attributes:
        urls: Where the streams lie.
        samples: Samples of all streams.
        shards: Shards of all streams.
        stored_bytes: Their bytes, as they are stored.
        assumed: What was assumed.
        complete: Whether all steps were simulated.
        epochs: The epochs that were simulated.
        nodes: What each node does.
        egress: Bytes that leave the storage over all epochs: at most so many, where that is not known.
        cost: What that costs.
        quality: How well the order of the first epoch mixes.
        series: Curves: ``seconds``; ``fetched`` and ``held``, bytes by name of the node; ``steps`` and the
            mean and the longest wait for each of some steps in a row, in seconds.
        notes: What a reader should know.
    """

    urls: tuple[str, ...]
    samples: int
    shards: int
    stored_bytes: int
    assumed: Assumed
    complete: bool
    epochs: tuple[EpochFound, ...]
    nodes: tuple[NodeFound, ...]
    egress: int
    cost: float
    quality: Measures
    series: dict[str, Any]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)


def series_of(nodes: Sequence[Node], end: float, waits: Sequence[float]) -> dict[str, Any]:
    """Return the curves of a run that ends after so many seconds, see `Found`."""
    times = np.linspace(0.0, end, POINTS + 1)
    fetched, held = ([_at(node, times, column) for node in nodes] for column in (1, 2))
    each = -(-len(waits) // POINTS)
    bins = [waits[at : at + each] for at in range(0, len(waits), each)]
    return {
        "seconds": [round(float(time), 4) for time in times],
        "fetched": _lines(fetched),
        "held": _lines(held),
        "steps": [at * each for at in range(len(bins))],
        "mean_wait": [round(sum(some) / len(some), 5) for some in bins],
        "longest_wait": [round(max(some), 5) for some in bins],
    }


def _at(node: Node, times: Any, column: int) -> Any:
    log = np.array(node.log)
    return log[np.searchsorted(log[:, 0], times, side="right") - 1, column]


def _lines(values: list[Any]) -> dict[str, list[int]]:
    """Return the curves of some nodes by name: of many, the least, the mean and the most."""
    if len(values) <= _LINES:
        named = {f"node {number}": each for number, each in enumerate(values)}
    else:
        table = np.stack(values)
        named = {
            "least of a node": table.min(0),
            "mean": table.mean(0),
            "most of a node": table.max(0),
        }
    return {name: [int(value) for value in each] for name, each in named.items()}
