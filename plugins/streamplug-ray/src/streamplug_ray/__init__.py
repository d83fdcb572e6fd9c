"""Writing and reading of data sets on Ray clusters for streamplug.

Modules for reading are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_ray.batches import RayBatches as RayBatches
    from streamplug_ray.data import StreamplugDatasource as StreamplugDatasource
    from streamplug_ray.data import from_streamplug as from_streamplug
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "batches": "RayBatches",
            "data": "StreamplugDatasource from_streamplug",
        },
    )
