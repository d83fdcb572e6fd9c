"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl

_NAMES = ("per_stream", "stratified", "device_per_stream")


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the orders of this distribution."""
    return [Provider("order", name, "streamplug_mixing.order:MixtureOrder") for name in _NAMES]
