"""Settings that a page offers to change, and the runs for their values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from streamplug.errors import ConfigError
from streamplug_simulate.model.planned_dataset import SimulatedDataset
from streamplug_simulate.model.result import SimulationResult
from streamplug_simulate.model.scenario import Scenario
from streamplug_simulate.model.simulation import simulate

MAX_CHANGED_SETTINGS = 2
"""Settings of a variant that may differ from the scenario."""

PAGE_MAX_NEEDS = 30_000
"""Limit of needs for each run of a page; see `simulate`."""

_MAX_VALUES = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting, and the values that a page offers for it.

    Attributes:
        name: Argument of `Scenario`.
        values: The values; the first is that of the scenario.
    """

    name: str
    values: tuple[Any, ...]


def offer_choices(plan: SimulatedDataset, scenario: Scenario) -> list[Choice]:
    """Return the settings that a page offers to change."""
    size, batch, nodes = plan.size, scenario.batch_size, scenario.nodes
    raw, largest = plan.shards.raw_bytes, plan.shards.largest
    step = scenario.step_seconds or 0.1
    offered: dict[str, Sequence[Any]] = {
        "shuffle": (None, "window", "global"),
        "block_size": (max(size // 50, 1), max(size // 5, 1)),
        "nodes": (nodes // 2 or 4 * nodes, 2 * nodes),
        "canonical_nodes": (4 * nodes, 1),
        "predownload": (None, 8 * batch, 64 * batch),
        "cache_limit": (None, max(raw // 5, largest), max(raw // 2, largest)),
        "bandwidth": (scenario.bandwidth / 4, scenario.bandwidth * 4),
        "step_seconds": (step / 2, step * 2),
    }
    choices = []
    for name, values in offered.items():
        distinct = dict.fromkeys([getattr(scenario, name), *values])
        choices.append(Choice(name, tuple(distinct)[:_MAX_VALUES]))
    return choices


def simulate_variants(
    plan: SimulatedDataset,
    scenario: Scenario,
    offered: Sequence[Choice],
    report: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, dict[str, Any]]:
    """Simulate all runs in which at most `MAX_CHANGED_SETTINGS` settings differ from the scenario.

    Args:
        plan: The data set.
        scenario: The scenario.
        offered: Settings to change.
        report: Called with the numbers of finished runs and of all.

    Returns:
        Page data of each run, or its error, by the numbers of the values joined by dots.
    """
    places = list(_places(offered))
    results = {}
    for done, place in enumerate(places):
        report(done, len(places))
        changed = {choice.name: choice.values[at] for choice, at in zip(offered, place)}
        with _no_warnings() if any(place) else nullcontext():
            results[".".join(map(str, place))] = simulate_for_page(
                plan, replace(scenario, **changed)
            )
    report(len(places), len(places))
    return results


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence warnings about runs that nobody asked for."""
    logger = logging.getLogger("streamplug")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _places(offered: Sequence[Choice]) -> Iterator[tuple[int, ...]]:
    for number in range(MAX_CHANGED_SETTINGS + 1):
        for some in combinations(range(len(offered)), number):
            for values in product(*(range(1, len(offered[choice].values)) for choice in some)):
                at = dict(zip(some, values))
                yield tuple(at.get(choice, 0) for choice in range(len(offered)))


def simulate_for_page(
    plan: SimulatedDataset, scenario: Scenario, max_needs: int = PAGE_MAX_NEEDS
) -> dict[str, Any]:
    """Simulate a run for a page; a refused run has a text under ``error``."""
    try:
        return summarize_result(simulate(plan, scenario, max_needs))
    except ConfigError as error:
        return {"error": str(error)}


def summarize_result(result: SimulationResult) -> dict[str, Any]:
    """Return page data of a result as JSON values."""
    whole = result.as_dict()
    series = {
        name: values for name, values in whole["series"].items() if name not in ("seconds", "steps")
    }
    series["end"] = result.series["seconds"][-1]
    steps = result.series["steps"]
    series["each"] = steps[1] if len(steps) > 1 else 1
    kept = ("complete", "epochs", "nodes", "egress", "cost", "quality", "notes")
    return {
        **{name: whole[name] for name in kept},
        "series": series,
        "cache_limit": result.scenario.cache_limit,
        "price": result.scenario.price,
    }
