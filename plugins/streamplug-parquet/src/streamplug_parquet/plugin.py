"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_formats() -> list[Provider]:
    """Name the format of this distribution."""
    return [Provider("parquet", "streamplug_parquet.format:Parquet")]
