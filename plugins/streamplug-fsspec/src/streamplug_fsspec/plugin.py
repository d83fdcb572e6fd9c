"""Plugin registration; imported on plugin discovery, so it must not import heavy modules."""

from __future__ import annotations

from streamplug.plugin import Provider, hookimpl


@hookimpl
def streamplug_plugins() -> list[Provider]:
    """List the storages of this distribution, and the one of all other protocols of fsspec."""
    return [
        Provider("storage", "http", "streamplug_fsspec.http:HttpStorage", aliases=("https",)),
        Provider("storage", "memory", "streamplug_fsspec.memory:MemoryStorage"),
        Provider("storage", "*", "streamplug_fsspec.fsspec_storage:FsspecStorage"),
    ]
