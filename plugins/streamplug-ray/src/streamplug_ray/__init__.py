"""Ray for streamplug: data sets are written and read on its clusters.

What reads is imported when it is first used, so that looking for plugins stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_ray.batches import RayBatches
    from streamplug_ray.data import StreamplugDatasource, from_streamplug

_HOME = {"RayBatches": "batches", "StreamplugDatasource": "data", "from_streamplug": "data"}

__all__ = ["RayBatches", "StreamplugDatasource", "from_streamplug"]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'streamplug_ray' has no attribute {name!r}")
        return getattr(import_module(f"streamplug_ray.{_HOME[name]}"), name)
