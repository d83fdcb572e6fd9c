"""The plugins of this distribution; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the format of this distribution."""
    return [Provider("format", "litdata", "streamplug_litdata.format:LitData")]
