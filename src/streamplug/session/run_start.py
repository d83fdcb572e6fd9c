"""How a run began, which its order may depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_STATE_COUNT = 1 << 20  # exclusive upper bound of counts that are accepted from a state


@dataclass(frozen=True, slots=True)
class RunStart:
    """How a run began, according to the loaded state; None if unknown.

    `global_batch` is in batches with a batching method of a plugin, else in samples.
    """

    canonical_nodes: int | None = None
    nodes: int | None = None
    batch_size: int | None = None
    global_batch: int | None = None

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> RunStart:
        """Return what a state says, without values that are invalid."""
        names = (
            "num_canonical_nodes",
            "initial_physical_nodes",
            "initial_batch_size",
            "global_batch",
        )
        return cls(*(positive_count(saved, name) for name in names))


def positive_count(saved: Mapping[str, Any], key: str) -> int | None:
    """Return a positive count of a state; None if it has none that is valid."""
    value = saved.get(key)
    return value if type(value) is int and 0 < value < _MAX_STATE_COUNT else None
