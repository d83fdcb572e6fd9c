"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_callbacks() -> list[Provider]:
    """Name the callbacks of this distribution."""
    return [Provider("opentelemetry", "streamplug_opentelemetry.callback:OpenTelemetry")]
