"""The plugins of this distribution; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the compressions of this distribution."""
    return [Provider("compression", "lz4", "streamplug_lz4.compression:LZ4")]
