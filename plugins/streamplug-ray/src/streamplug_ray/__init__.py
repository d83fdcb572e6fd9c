"""Writing and reading of data sets on Ray clusters for streamplug.

Modules for reading are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_ray.batches import RayBatches
    from streamplug_ray.data import StreamplugDatasource, from_streamplug

_HOME = {"RayBatches": "batches", "StreamplugDatasource": "data", "from_streamplug": "data"}

__all__ = ["RayBatches", "StreamplugDatasource", "from_streamplug"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'streamplug_ray' has no attribute {name!r}")
        return getattr(import_module(f"streamplug_ray.{_HOME[name]}"), name)
