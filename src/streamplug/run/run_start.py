"""How a run began, on which its order may depend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamplug.plan import EpochConfig
from streamplug.types import World

_MAX_STATE_COUNT = 1 << 20  # exclusive upper bound of counts that are accepted from a state


@dataclass(frozen=True, slots=True)
class RunStart:
    """How a run began, according to the loaded state or before a change of the world; None if unknown.

    `micro_batches` are the batches of a global batch over all ranks if they vary in size, else None. `world`
    is that for which a partition that is not elastic combined the streams.
    """

    canonical_nodes: int | None = None
    nodes: int | None = None
    batch_size: int | None = None
    micro_batches: int | None = None
    world: World | None = None

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> RunStart:
        """Return what a state says, without values that are invalid."""
        return cls(
            positive_count(saved, "num_canonical_nodes"),
            positive_count(saved, "initial_physical_nodes"),
            positive_count(saved, "initial_batch_size"),
            positive_count(saved, "micro_batches"),
            _initial_world(saved),
        )

    @classmethod
    def of(cls, config: EpochConfig) -> RunStart:
        """Return how a run began that has this configuration."""
        return cls(
            config.canonical_nodes,
            config.initial_nodes,
            config.initial_batch_size,
            config.micro_batches or None,
            config.initial_world,
        )


def _initial_world(saved: Mapping[str, Any]) -> World | None:
    sizes, global_batch = saved.get("initial_world"), positive_count(saved, "global_batch")
    if not isinstance(sizes, list) or len(sizes) != 2 or global_batch is None:
        return None
    if any(type(size) is not int or not 0 < size <= global_batch for size in sizes):
        return None
    world = World(*sizes)
    return None if global_batch % world.ranks else world


def positive_count(saved: Mapping[str, Any], key: str) -> int | None:
    """Return a positive count of a state; None if it has none, or an absurd one."""
    value = saved.get(key)
    return value if type(value) is int and 0 < value < _MAX_STATE_COUNT else None
