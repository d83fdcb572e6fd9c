"""Batches of limited cost, such as a number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_budget.budget import BatchBudget as BatchBudget
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "budget": "BatchBudget",
        },
    )
