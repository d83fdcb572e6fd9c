"""Planner of batches of limited cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from streamplug_mixing import Curriculum, ProportionPlanner
from streamplug_tokens.length_cache import ArrayCache

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Position, Segment, Streams
from streamplug.types import Int64
from streamplug_budget.curriculum import BudgetCurriculum
from streamplug_budget.epoch import BudgetEpoch
from streamplug_budget.part_planner import PartPlanner
from streamplug_budget.sequence import EpochSequences
from streamplug_budget.windows import CostModel


class BudgetPlanner(ProportionPlanner):
    """Planner of batches of limited cost."""

    counts_batches = True

    def __init__(self, streams: Streams, model: CostModel, cache: ArrayCache) -> None:
        """Plan batches by costs; `cache` keeps the numbers of bins of an epoch for all processes."""
        super().__init__(streams)
        self._model, self._cache = model, cache
        self._latest: tuple[object, BudgetCurriculum] | None = None
        self.micro_batches = model.budget.micro_batches

    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        if isinstance(self.streams.mixture, Curriculum):
            return self._curriculum(self.streams.mixture, segments).epoch(number)
        segment, size = segments[0], self.streams.epoch_size
        count = self._model.count_sequences(size, segment.canonical_nodes)
        streams = self.streams.of(segment)
        sequences = EpochSequences(streams, number, segment.canonical_nodes, count)
        part = self._parts(segment).part(number, sequences)
        return BudgetEpoch([part], segment.global_batch)

    def _parts(self, segment: Segment) -> PartPlanner:
        nodes, micro_batches = segment.canonical_nodes, segment.global_batch
        streams = self.streams.of(segment)
        return PartPlanner(streams, self._model, nodes, micro_batches, self._cache)

    def _curriculum(self, curriculum: Curriculum, segments: Sequence[Segment]) -> BudgetCurriculum:
        """Return the epochs of a curriculum, with the beginnings of those that were planned before."""
        first = segments[0]
        key = first.canonical_nodes, first.block_size, first.global_batch
        if self._latest is None or self._latest[0] != key:
            epochs = BudgetCurriculum(curriculum, self._parts(segments[0]), segments)
        else:
            epochs = self._latest[1].with_segments(segments)
        self._latest = key, epochs
        return epochs

    def options(self) -> dict[str, Any]:
        """Return the data set's `batch_budget`; None if it measures samples by a function."""
        budget = self._model.budget
        return {"batch_options": None if callable(budget.measure) else asdict(budget)}

    def order_substitutes(self, sample: int, candidates: Int64) -> Int64:
        """Return those first that cost no more than the sample, then the others by their cost."""
        costs = self._model.budget.costs(self._model.lengths.of(np.append(candidates, sample)))
        excess = np.maximum(costs[:-1] - costs[-1], 0)
        return candidates[np.argsort(excess, kind="stable")]

    def identity(self, segment: Segment) -> dict[str, Any]:
        return self._model.identity()

    # -- segments --------------------------------------------------------------------

    def position_of(self, step: int, segments: Sequence[Segment]) -> Position:
        if isinstance(self.streams.mixture, Curriculum):
            return self._curriculum(self.streams.mixture, segments).position_of(step)
        return super().position_of(step, segments)

    def with_proportions(
        self,
        segments: Sequence[Segment],
        position: Position,
        proportions: Sequence[float],
    ) -> list[Segment]:
        if not isinstance(self.streams.mixture, Curriculum):
            raise ConfigError(
                "set_proportions: batching_method='budget': begin the run with a curriculum=, such as "
                "{0: [...]}"
            )
        return self.changed_by_hand(segments, position, proportions)

    def planned(self, until: Position, segments: Sequence[Segment]) -> list[Segment]:
        if not isinstance(self.streams.mixture, Curriculum):
            return []
        return self._curriculum(self.streams.mixture, segments).planned(until)
