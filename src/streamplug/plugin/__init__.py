"""Plugins: how they are declared, found, and looked up by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.plugin.discovery import Found, Inventory, inventory
    from streamplug.plugin.hookspecs import hookimpl
    from streamplug.plugin.location import open_storage
    from streamplug.plugin.provider import Provider
    from streamplug.plugin.registry import make, register, resolve

_HOME = {
    "Found": "discovery",
    "Inventory": "discovery",
    "Provider": "provider",
    "hookimpl": "hookspecs",
    "inventory": "discovery",
    "make": "registry",
    "open_storage": "location",
    "register": "registry",
    "resolve": "registry",
}

__all__ = [
    "Found",
    "Inventory",
    "Provider",
    "hookimpl",
    "inventory",
    "make",
    "open_storage",
    "register",
    "resolve",
]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        # pluggy and importlib.metadata are only needed where plugins are.
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
