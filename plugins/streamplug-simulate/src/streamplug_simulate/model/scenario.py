"""Assumed: what a simulation is told of the machines, the network and the training loop."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streamplug.errors import ConfigError

_COUNTS = ("nodes", "ranks_per_node", "batch_size", "epochs", "prefetch_factor")
_NUMBERS = ("latency", "step_seconds", "price")


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is assumed of a run.

    Attributes:
        nodes: Machines; each has a cache of its own.
        ranks_per_node: Ranks of each.
        workers: Loader workers of each rank; 0 reads in the training process.
        prefetch_factor: Batches that a loader worker makes ahead.
        batch_size: Samples per batch of one rank.
        shuffle: Name of the shuffle, or None for the order as stored.
        block_size: Of the shuffle, in samples; None for its default.
        canonical_nodes: Canonical nodes of the order; None for the shuffle's default.
        predownload: Samples that each process makes ready ahead; None adapts.
        cache_limit: Bytes that the shards of each cache of a node may take; None for any number.
        bandwidth: Bytes per second that each node receives, shared evenly by what it fetches at a time.
        latency: Seconds from a request to its first byte.
        step_seconds: Seconds that the training loop takes for a step, once all ranks have their batch.
        epochs: How many.
        price: What 10⁹ bytes cost to leave the storage; 0 for nothing.

    Raises:
        ConfigError: If a value has no meaning.
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
        for name in _COUNTS:
            self._check(name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("block_size", "canonical_nodes", "cache_limit"):
            value = getattr(self, name)
            self._check(name, value is None or value >= 1, "must be at least 1")
        self._check("workers", self.workers >= 0, "must be 0 or more")
        ahead = self.predownload
        self._check("predownload", ahead is None or ahead >= 0, "must be 0 or more")
        for name in _NUMBERS:
            value = getattr(self, name)
            self._check(name, math.isfinite(value) and value >= 0, "must be 0 or more")
        good = math.isfinite(self.bandwidth) and self.bandwidth >= 1
        self._check("bandwidth", good, "must be at least 1 byte per second")

    def _check(self, name: str, good: bool, rule: str) -> None:
        if not good:
            raise ConfigError(f"{name}={getattr(self, name)!r}: {rule}")
