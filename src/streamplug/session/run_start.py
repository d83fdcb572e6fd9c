"""How a run began, on which its order may depend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamplug.plan import EpochConfig

_MAX_STATE_COUNT = 1 << 20  # exclusive upper bound of counts that are accepted from a state


@dataclass(frozen=True, slots=True)
class RunStart:
    """How a run began, according to the loaded state or before a change of the world; None if unknown.

    `micro_batches` are the batches of a global batch over all ranks if they vary in size, else None.
    """

    canonical_nodes: int | None = None
    nodes: int | None = None
    batch_size: int | None = None
    micro_batches: int | None = None

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> RunStart:
        """Return what a state says, without values that are invalid."""
        names = (
            "num_canonical_nodes",
            "initial_physical_nodes",
            "initial_batch_size",
            "micro_batches",
        )
        return cls(*(positive_count(saved, name) for name in names))

    @classmethod
    def of(cls, config: EpochConfig) -> RunStart:
        """Return how a run began that has this configuration."""
        return cls(
            config.canonical_nodes,
            config.initial_nodes,
            config.initial_batch_size,
            config.micro_batches or None,
        )


def positive_count(saved: Mapping[str, Any], key: str) -> int | None:
    """Return a positive count of a state; None if it has none, or an absurd one."""
    value = saved.get(key)
    return value if type(value) is int and 0 < value < _MAX_STATE_COUNT else None
