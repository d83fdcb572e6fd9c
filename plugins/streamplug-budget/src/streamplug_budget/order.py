"""The order ``budget``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from streamplug_mixing import CurriculumOrder
from streamplug_tokens.length_cache import ArrayCache

from streamplug.errors import ConfigError
from streamplug.plan import Streams
from streamplug.run import OrderOptions
from streamplug.source import OpenSources
from streamplug_budget.budget import BatchBudget
from streamplug_budget.length_counter import read_lengths
from streamplug_budget.planner import BudgetPlanner
from streamplug_budget.sample_lengths import SampleLengths
from streamplug_budget.windows import CostModel

_NUMBERS: Mapping[str, type[int | float]] = {
    "max_length": int,
    "micro_batches": int,
    "quadratic": float,
}
"""Types of the options that are numbers only."""


class BudgetOrder(CurriculumOrder):
    """Batches of as many samples as a limit of their cost allows."""

    def check(self, options: OrderOptions) -> None:
        parse_budget(options.batch_budget)
        if options.partition_algo != "elastic":
            raise ConfigError(
                f"partition_algo={options.partition_algo!r}: give it as batching_method=, with "
                "partition_algo='elastic'"
            )

    def planner(
        self, options: OrderOptions, streams: Streams, sources: OpenSources
    ) -> BudgetPlanner:
        budget = parse_budget(options.batch_budget)
        lengths = SampleLengths([read_lengths(stream, budget) for stream in sources])
        cost = int(budget.costs(np.array([lengths.longest]))[0])
        if cost > budget.largest_cost:
            raise ConfigError(
                f"batch_budget: sample {lengths.find_longest()} of length {lengths.longest} costs {cost}, "
                f"more than limit={budget.largest_cost}; give a larger limit=, or max_length= if a transform "
                "cuts long samples, or leave such samples out by select= of the data set"
            )
        model = CostModel(lengths, budget, options.batch_size)
        return BudgetPlanner(streams, model, ArrayCache(sources[0]))


def parse_budget(budget: Any) -> BatchBudget:
    """Return the options of a data set's `batch_budget`.

    Raises:
        ConfigError: If they are invalid.
    """
    if isinstance(budget, BatchBudget):
        return budget
    if isinstance(budget, Mapping) and all(isinstance(name, str) for name in budget):
        return BatchBudget(**{name: _parse_number(name, value) for name, value in budget.items()})
    raise ConfigError(
        f"batch_budget={budget!r:.80}: expected a BatchBudget of streamplug_budget, or a mapping of its "
        'options, such as {"limit": 65536, "column": "tokens"}'
    )


def _parse_number(name: str, value: Any) -> Any:
    """Return an option; a number of which a config has the text, which an environment variable is."""
    kind = _NUMBERS.get(name)
    if kind is None or not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        return value  # `BatchBudget` raises
