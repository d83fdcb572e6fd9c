"""Declaration, discovery and lookup of plugins."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug.plugin.discovery import Inventory as Inventory
    from streamplug.plugin.discovery import PluginEntry as PluginEntry
    from streamplug.plugin.discovery import inventory as inventory
    from streamplug.plugin.hookspecs import hookimpl as hookimpl
    from streamplug.plugin.location import open_storage as open_storage
    from streamplug.plugin.provider import Provider as Provider
    from streamplug.plugin.registry import make as make
    from streamplug.plugin.registry import register as register
    from streamplug.plugin.registry import resolve as resolve

_MODULES = {
    "Inventory": "discovery",
    "PluginEntry": "discovery",
    "Provider": "provider",
    "hookimpl": "hookspecs",
    "inventory": "discovery",
    "make": "registry",
    "open_storage": "location",
    "register": "registry",
    "resolve": "registry",
}

__all__ = list(_MODULES)

if not TYPE_CHECKING:  # else type checkers would accept any attribute

    def __getattr__(name: str) -> Any:
        # Lazy, so that pluggy and importlib.metadata are imported for discovery only.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
