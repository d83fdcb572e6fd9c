"""Well-known data sets: classes that read them. `streamplug_datasets.convert` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_datasets.language import StreamingC4 as StreamingC4
    from streamplug_datasets.language import StreamingEnWiki as StreamingEnWiki
    from streamplug_datasets.language import StreamingPile as StreamingPile
    from streamplug_datasets.video import StreamingInsideWebVid as StreamingInsideWebVid
    from streamplug_datasets.video import StreamingOutsideDTWebVid as StreamingOutsideDTWebVid
    from streamplug_datasets.video import StreamingOutsideGIWebVid as StreamingOutsideGIWebVid
    from streamplug_datasets.vision import StreamingADE20K as StreamingADE20K
    from streamplug_datasets.vision import StreamingCIFAR10 as StreamingCIFAR10
    from streamplug_datasets.vision import StreamingCOCO as StreamingCOCO
    from streamplug_datasets.vision import StreamingImageNet as StreamingImageNet
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "language": "StreamingC4 StreamingEnWiki StreamingPile",
            "video": "StreamingInsideWebVid StreamingOutsideDTWebVid StreamingOutsideGIWebVid",
            "vision": "StreamingADE20K StreamingCIFAR10 StreamingCOCO StreamingImageNet",
        },
    )
