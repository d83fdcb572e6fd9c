"""Packing of samples after they were decoded and transformed, and batches of sequences of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_packing.collators import PaddingCollator as PaddingCollator
    from streamplug_packing.collators import VarlenCollator as VarlenCollator
    from streamplug_packing.loader import PackingDataLoader as PackingDataLoader
    from streamplug_packing.samples import PackedSamples as PackedSamples
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "collators": "PaddingCollator VarlenCollator",
            "loader": "PackingDataLoader",
            "samples": "PackedSamples",
        },
    )
