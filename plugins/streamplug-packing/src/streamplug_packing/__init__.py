"""Packing of samples after they were decoded and transformed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_packing.loader import PackingDataLoader
    from streamplug_packing.samples import PackedSamples

__all__ = ["PackedSamples", "PackingDataLoader"]

_MODULES = {"PackedSamples": "samples", "PackingDataLoader": "loader"}

if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:  # the loader imports torch
        if name not in __all__:
            raise AttributeError(f"module 'streamplug_packing' has no attribute {name!r}")
        return getattr(import_module(f"streamplug_packing.{_MODULES[name]}"), name)
