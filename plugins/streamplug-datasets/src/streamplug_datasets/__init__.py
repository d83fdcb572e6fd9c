"""Well-known data sets: classes that read them. `streamplug_datasets.convert` writes them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_datasets.language import StreamingC4, StreamingEnWiki, StreamingPile
    from streamplug_datasets.video import (
        StreamingInsideWebVid,
        StreamingOutsideDTWebVid,
        StreamingOutsideGIWebVid,
    )
    from streamplug_datasets.vision import (
        StreamingADE20K,
        StreamingCIFAR10,
        StreamingCOCO,
        StreamingImageNet,
    )

# Imported when they are first used: converters start many processes, and have no use for torch.
_HOME = {
    "StreamingADE20K": "vision",
    "StreamingC4": "language",
    "StreamingCIFAR10": "vision",
    "StreamingCOCO": "vision",
    "StreamingEnWiki": "language",
    "StreamingImageNet": "vision",
    "StreamingInsideWebVid": "video",
    "StreamingOutsideDTWebVid": "video",
    "StreamingOutsideGIWebVid": "video",
    "StreamingPile": "language",
}

__all__ = [
    "StreamingADE20K",
    "StreamingC4",
    "StreamingCIFAR10",
    "StreamingCOCO",
    "StreamingEnWiki",
    "StreamingImageNet",
    "StreamingInsideWebVid",
    "StreamingOutsideDTWebVid",
    "StreamingOutsideGIWebVid",
    "StreamingPile",
]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
