"""Variants: what a page offers to change, and the runs that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from streamplug.errors import ConfigError
from streamplug_simulate.model.planned_dataset import Planned
from streamplug_simulate.model.result import Found
from streamplug_simulate.model.scenario import Assumed
from streamplug_simulate.model.simulation import simulate

MOST_DIFFERENT = 2
"""How many settings of a variant may differ from what was assumed."""

NEEDS = 30_000
"""Needs that are looked at for each run of a page; see `simulate`."""

_CHOICES = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting, and the values that a page offers for it.

    Attributes:
        name: Of the argument of `Assumed`.
        values: The values; the first is what was assumed.
    """

    name: str
    values: tuple[Any, ...]


def choices(plan: Planned, assumed: Assumed) -> list[Choice]:
    """Return what a page offers to change."""
    size, batch, nodes = plan.size, assumed.batch_size, assumed.nodes
    raw, largest = int(plan.shards.raw.sum()), plan.shards.largest
    step = assumed.step_seconds or 0.1
    offered: dict[str, Sequence[Any]] = {
        "shuffle": (None, "window", "global"),
        "block_size": (max(size // 50, 1), max(size // 5, 1)),
        "nodes": (nodes // 2 or 4 * nodes, 2 * nodes),
        "canonical_nodes": (4 * nodes, 1),
        "predownload": (None, 8 * batch, 64 * batch),
        "cache_limit": (None, max(raw // 5, largest), max(raw // 2, largest)),
        "bandwidth": (assumed.bandwidth / 4, assumed.bandwidth * 4),
        "step_seconds": (step / 2, step * 2),
    }
    found = []
    for name, values in offered.items():
        distinct = dict.fromkeys([getattr(assumed, name), *values])
        found.append(Choice(name, tuple(distinct)[:_CHOICES]))
    return found


def variants(
    plan: Planned,
    assumed: Assumed,
    offered: Sequence[Choice],
    report: Callable[[int, int], None] = lambda _done, _all: None,
) -> dict[str, dict[str, Any]]:
    """Simulate all runs in which at most `MOST_DIFFERENT` settings differ from what was assumed.

    Args:
        plan: The data set.
        assumed: What was assumed.
        offered: What is changed.
        report: Told how many runs are done, of how many.

    Returns:
        What a page shows of each, or why it cannot be, by the numbers of the values, with dots between.
    """
    places = list(_places(offered))
    found = {}
    for done, place in enumerate(places):
        report(done, len(places))
        changed = {choice.name: choice.values[at] for choice, at in zip(offered, place)}
        found[".".join(map(str, place))] = shown(plan, replace(assumed, **changed))
    report(len(places), len(places))
    return found


def _places(offered: Sequence[Choice]) -> Iterator[tuple[int, ...]]:
    for number in range(MOST_DIFFERENT + 1):
        for some in combinations(range(len(offered)), number):
            for values in product(*(range(1, len(offered[each].values)) for each in some)):
                at = dict(zip(some, values))
                yield tuple(at.get(each, 0) for each in range(len(offered)))


def shown(plan: Planned, assumed: Assumed, most: int = NEEDS) -> dict[str, Any]:
    """Return what a page shows of a run, or why there is none under ``error``."""
    try:
        return brief(simulate(plan, assumed, most))
    except ConfigError as error:
        return {"error": str(error)}


def brief(found: Found) -> dict[str, Any]:
    """Return what a page shows of a run, as plain JSON values."""
    whole = found.as_dict()
    series = {
        name: values for name, values in whole["series"].items() if name not in ("seconds", "steps")
    }
    series["end"] = found.series["seconds"][-1]
    steps = found.series["steps"]
    series["each"] = steps[1] if len(steps) > 1 else 1
    kept = ("complete", "epochs", "nodes", "egress", "cost", "quality", "notes")
    return {
        **{name: whole[name] for name in kept},
        "series": series,
        "cache_limit": found.assumed.cache_limit,
        "price": found.assumed.price,
    }
