"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the formats of this distribution."""
    return [
        Provider("format", "parquet", "streamplug_parquet.format:Parquet"),
        Provider("format", "arrow", "streamplug_parquet.arrow_files:Arrow"),
    ]
