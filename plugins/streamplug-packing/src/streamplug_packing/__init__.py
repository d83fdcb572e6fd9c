"""Packing of samples after they were decoded and transformed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_packing.loader import PackingDataLoader as PackingDataLoader
    from streamplug_packing.samples import PackedSamples as PackedSamples
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "loader": "PackingDataLoader",
            "samples": "PackedSamples",
        },
    )
