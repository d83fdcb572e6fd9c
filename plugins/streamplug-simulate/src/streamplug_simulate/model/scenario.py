"""Machines, network and training loop of a simulated run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

from streamplug.config import whole_number
from streamplug.errors import ConfigError, PluginError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.plugin import make

_LOWEST_VALUES = {
    "nodes": 1,
    "ranks_per_node": 1,
    "workers": 0,
    "prefetch_factor": 1,
    "batch_size": 1,
    "block_size": 1,
    "canonical_nodes": 1,
    "predownload": 0,
    "cache_limit": 1,
    "epochs": 1,
}
"""Lowest value of each whole number."""

_OPTIONAL = ("block_size", "canonical_nodes", "predownload", "cache_limit")
_NUMBERS = ("latency", "step_seconds", "price")
_MAX_NUMBER = 1e12
_MAX_PROCESSES = 1 << 20  # each takes about a millisecond


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Machines, network and training loop of a simulated run.

    Attributes:
        nodes: Number of machines; each has its own cache.
        ranks_per_node: Ranks per node.
        workers: Loader workers per rank; 0 reads in the training process.
        prefetch_factor: Batches that a loader worker prefetches.
        batch_size: Samples per batch of one rank.
        shuffle: Name of the shuffle, or None for the order as stored.
        block_size: Shuffle block size in samples; None for the shuffle's default.
        canonical_nodes: Number of canonical nodes; None for the shuffle's default.
        predownload: Samples that each process prefetches; None adapts.
        cache_limit: Limit of each cache of a node in bytes; None for no limit.
        bandwidth: Bytes per second of each node, shared by concurrent downloads.
        latency: Seconds from a request to its first byte.
        step_seconds: Seconds of a training step, once all ranks have their batch.
        epochs: Number of epochs.
        price: Price of 10⁹ bytes of egress.

    Raises:
        ConfigError: If a value is invalid.
    """

    nodes: int = 1
    ranks_per_node: int = 1
    workers: int = 0
    prefetch_factor: int = 2
    batch_size: int = 1
    shuffle: str | None = None
    block_size: int | None = None
    canonical_nodes: int | None = None
    predownload: int | None = None
    cache_limit: int | None = None
    bandwidth: float = 1e9
    latency: float = 0.03
    step_seconds: float = 0.1
    epochs: int = 1
    price: float = 0.0

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST_VALUES.items():
            number = whole_number(name, getattr(self, name), lowest)
            self._check(name, number is not None or name in _OPTIONAL, "must be a whole number")
        for name in _NUMBERS:
            value = getattr(self, name)
            is_valid = _is_number(value) and 0 <= value <= _MAX_NUMBER
            self._check(name, is_valid, f"must be a number from 0 to {_MAX_NUMBER:g}")
        is_valid = _is_number(self.bandwidth) and 1 <= self.bandwidth < math.inf
        self._check("bandwidth", is_valid, "must be at least 1 byte per second")

        self._check("batch_size", self.batch_size < 1 << 31, "must be at most 2147483647")
        processes = self.nodes * self.ranks_per_node * max(self.workers, 1)
        if processes > _MAX_PROCESSES:
            raise ConfigError(
                f"nodes={self.nodes}, ranks_per_node={self.ranks_per_node}, workers={self.workers}: must be "
                f"at most {_MAX_PROCESSES} processes together"
            )

    def _check(self, name: str, is_valid: bool, rule: str) -> None:
        if not is_valid:
            raise ConfigError(f"{name}={getattr(self, name)!r}: {rule}")


def uses_block_size(shuffle: str | None) -> bool:
    """Return whether the order of a shuffle depends on its block size; True if it cannot be loaded."""
    try:
        algorithm: ShuffleAlgorithm = make("shuffle", shuffle or "none")
    except PluginError:
        return True
    return algorithm.uses_block_size
