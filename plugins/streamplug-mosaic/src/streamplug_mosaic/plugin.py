"""Declaration of the plugins of this distribution; it imports nothing else, as every listing imports it."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """Name the shuffles and orders of this distribution."""
    return [
        Provider("shuffle", "naive", "streamplug_mosaic.shuffles:Naive"),
        Provider("shuffle", "py1s", "streamplug_mosaic.shuffles:Py1s"),
        Provider("shuffle", "py2s", "streamplug_mosaic.shuffles:Py2s"),
        Provider("shuffle", "py1br", "streamplug_mosaic.shuffles:Py1br"),
        Provider("shuffle", "py1e", "streamplug_mosaic.shuffles:Py1e"),
        Provider("order", "orig", "streamplug_mosaic.order:OrigOrder"),
        Provider("order", "relaxed", "streamplug_mosaic.order:RelaxedOrder"),
    ]
