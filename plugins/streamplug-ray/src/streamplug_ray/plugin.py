"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the engines of this distribution."""
    return [Provider("engine", "ray", "streamplug_ray.engine:Ray")]
