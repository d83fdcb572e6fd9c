"""Planner of batches of limited cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from streamplug_tokens.length_cache import ArrayCache

from streamplug.plan import BatchPlanner, Curriculum, CurriculumChange, Epoch, OrderedSamples
from streamplug.plan.stream_samples import StreamSamples
from streamplug.types import Int64, World
from streamplug_budget.bin_counts import complete_global_batch, count_bins_until
from streamplug_budget.curriculum import BudgetCurriculum, EpochStart, common_starts, start_run
from streamplug_budget.epoch import BudgetEpoch, EpochPart
from streamplug_budget.sequence import OrderedSequences, RunStreams, Sequences
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
        self._latest: tuple[str, EpochPart] | None = None
        self._curriculum: tuple[tuple[object, ...], BudgetCurriculum] | None = None
        # Beginnings of epochs of a curriculum, also for loader workers.
        self._starts: tuple[str, Sequence[CurriculumChange], list[EpochStart]] = ("", (), [])
        self.micro_batches = model.budget.micro_batches

    def epoch(
        self,
        make_order: Callable[[], OrderedSamples],
        number: int,
        *,
        order_key: str,
        world: World,
        canonical_nodes: int,
        micro_batches: int,
        seed: int,
    ) -> Epoch:
        key = f"bins of windows {self.identity()} {micro_batches} {order_key}"
        if self._latest is None or self._latest[0] != key:
            of_sequences = partial(_make_windows, self._model, micro_batches, seed, number)
            make_windows = partial(
                _order_windows, make_order, canonical_nodes, self._model, of_sequences
            )
            windows = make_windows()
            count = partial(count_bins_until, windows, make_windows, None)
            counts = self._cached(sum(windows.sequences.sizes), key, count)
            completed = complete_global_batch(windows, counts, micro_batches)
            self._latest = key, EpochPart(windows, completed)
        return BudgetEpoch([self._latest[1]], micro_batches, world)

    def curriculum_epochs(
        self,
        curriculum: Curriculum,
        make_streams: Callable[[], Sequence[StreamSamples]],
        first_ids: Sequence[int],
        *,
        order_key: str,
        canonical_nodes: int,
        micro_batches: int,
        seed: int,
    ) -> BudgetCurriculum:
        size = curriculum.epoch_size
        order = f"bins of windows {self.identity()} {micro_batches} {order_key} {size}"
        key = order, curriculum.changes
        if self._curriculum is None or self._curriculum[0] != key:
            before, changes, starts = self._starts
            kept = common_starts(starts, changes, curriculum.changes) if before == order else []
            if not kept:
                sequences = self._model.count_sequences(size, canonical_nodes)
                kept = [start_run(len(curriculum.sizes), sequences)]
            self._starts = *key, kept
            epochs = BudgetCurriculum(
                curriculum,
                RunStreams(make_streams, first_ids),
                micro_batches,
                kept,
                make_windows=partial(_make_windows, self._model, micro_batches, seed),
                cached=lambda part, count: self._cached(size, f"{order} {part}", count),
            )
            self._curriculum = key, epochs
        return self._curriculum[1]

    def _cached(self, samples: int, key: str, count: Callable[[], Int64]) -> Int64:
        return self._cache.array(key, count) if samples >= _MIN_CACHED_SAMPLES else count()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_latest": None, "_curriculum": None}

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


def _order_windows(
    make_order: Callable[[], OrderedSamples],
    canonical_nodes: int,
    model: CostModel,
    make_windows: Callable[[Sequences], EpochWindows],
) -> EpochWindows:
    ordered = make_order()
    count = model.count_sequences(ordered.size, canonical_nodes)
    return make_windows(OrderedSequences(ordered, canonical_nodes, count))


def _make_windows(
    model: CostModel, micro_batches: int, seed: int, number: int, sequences: Sequences
) -> EpochWindows:
    offset = np.random.default_rng([_GENERATOR_USE, seed, number]).integers(1 << 63)
    return EpochWindows(sequences, model, micro_batches, int(offset))
