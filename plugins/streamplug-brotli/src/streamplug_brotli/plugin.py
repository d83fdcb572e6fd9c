"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_compressions() -> list[Provider]:
    """Name the compressions of this distribution."""
    return [Provider("br", "streamplug_brotli.compression:Brotli")]
