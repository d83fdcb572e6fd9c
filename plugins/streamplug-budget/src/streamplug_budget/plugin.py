"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the order of this distribution."""
    return [Provider("order", "budget", "streamplug_budget.order:BudgetOrder")]
