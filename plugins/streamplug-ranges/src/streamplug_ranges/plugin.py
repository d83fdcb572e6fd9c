"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the accesses of this distribution."""
    return [
        Provider("access", "auto", "streamplug_ranges.access:AutoAccess"),
        Provider("access", "range", "streamplug_ranges.access:RangeAccess"),
    ]
