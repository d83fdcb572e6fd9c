"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_engines() -> list[Provider]:
    """Name the engines of this distribution."""
    return [Provider("spark", "streamplug_spark.engine:Spark")]
