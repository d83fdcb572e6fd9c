"""Planner of batches of limited cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from streamplug_tokens.length_cache import ArrayCache

from streamplug.plan import BatchPlanner, Epoch, OrderedSamples
from streamplug.types import Int64, World
from streamplug_budget.bin_counts import count_all_bins
from streamplug_budget.epoch import BudgetEpoch
from streamplug_budget.windows import CostModel, EpochWindows

_MIN_CACHED_SAMPLES = 1 << 20
"""Samples of an epoch from which on the numbers of bins are worth a file."""
_GENERATOR_USE = 32
"""Distinguishes the random numbers from those of shuffles."""


class BudgetPlanner(BatchPlanner):
    """Planner of batches of limited cost."""

    def __init__(self, model: CostModel, cache: ArrayCache) -> None:
        """Plan batches by costs; `cache` keeps the numbers of bins of an epoch for all processes."""
        self._model, self._cache = model, cache
        self._latest: tuple[str, EpochWindows, Int64] | None = None
        self.global_batch = model.budget.micro_batches

    def epoch(
        self,
        make_order: Callable[[], OrderedSamples],
        number: int,
        *,
        order_key: str,
        world: World,
        canonical_nodes: int,
        global_batch: int,
        seed: int,
    ) -> Epoch:
        key = f"bins {self.identity()} {global_batch} {order_key}"
        if self._latest is None or self._latest[0] != key:
            make_windows = partial(
                _make_windows,
                make_order,
                canonical_nodes,
                self._model,
                global_batch,
                (seed, number),
            )
            windows = make_windows()
            count = partial(count_all_bins, windows, make_windows)
            is_large = windows.samples >= _MIN_CACHED_SAMPLES
            self._latest = key, windows, self._cache.array(key, count) if is_large else count()
        _, windows, counts = self._latest
        return BudgetEpoch(windows, counts, global_batch, world)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None}

    def options(self) -> dict[str, Any] | None:
        budget = self._model.budget
        return None if callable(budget.measure) else asdict(budget)

    def order_substitutes(self, sample: int, candidates: Int64) -> Int64:
        """Return those first that cost no more than the sample, then the others by their cost."""
        costs = self._model.budget.costs(self._model.lengths.of(np.append(candidates, sample)))
        excess = np.maximum(costs[:-1] - costs[-1], 0)
        return candidates[np.argsort(excess, kind="stable")]

    def identity(self) -> dict[str, Any]:
        model = self._model
        return {
            **model.budget.identity(),
            "max_samples": model.max_samples,
            "lengths": model.lengths.digest,
        }


def _make_windows(
    make_order: Callable[[], OrderedSamples],
    canonical_nodes: int,
    model: CostModel,
    global_batch: int,
    seed_and_epoch: tuple[int, int],
) -> EpochWindows:
    offset = np.random.default_rng([_GENERATOR_USE, *seed_and_epoch]).integers(1 << 63)
    return EpochWindows(make_order(), canonical_nodes, model, global_batch, int(offset))
