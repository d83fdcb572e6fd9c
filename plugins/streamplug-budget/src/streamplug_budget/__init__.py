"""Batches of limited cost, such as a number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_budget.budget import BatchBudget

__all__ = ["BatchBudget"]

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_budget' has no attribute {name!r}")
        from streamplug_budget.budget import BatchBudget

        globals()[name] = BatchBudget
        return BatchBudget
