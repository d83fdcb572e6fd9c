"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the table formats of this distribution."""
    return [
        Provider("table", "view", "streamplug_views.view_format:ViewFormat"),
        Provider("table", "where", "streamplug_views.expression_format:ExpressionFormat"),
    ]
