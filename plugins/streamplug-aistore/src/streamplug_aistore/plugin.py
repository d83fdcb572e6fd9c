"""What this distribution provides; imported when plugins are looked for, so it stays light."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_storages() -> list[Provider]:
    """Name the storages of this distribution."""
    return [Provider("ais", "streamplug_aistore.storage:AistoreStorage")]
