"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the table formats of this distribution."""
    return [
        Provider(
            "source",
            "view",
            "streamplug_views.view_source:ViewSource",
            manifest="view.json",
        ),
        Provider("source", "where", "streamplug_views.expression_source:ExpressionSource"),
    ]
