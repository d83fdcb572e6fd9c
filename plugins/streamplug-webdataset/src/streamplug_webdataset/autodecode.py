"""Decoders by the names of webdataset's module: those of `decoding`."""

from __future__ import annotations

from streamplug_webdataset.container_encodings import torch_loads
from streamplug_webdataset.decoding import (
    IMAGE_SPECS,
    Continue,
    Decoder,
    DecodingError,
    basichandlers,
    gzfilter,
    handle_extension,
    imagehandler,
)

ImageHandler = imagehandler
imagespecs = IMAGE_SPECS

__all__ = [
    "Continue",
    "Decoder",
    "DecodingError",
    "ImageHandler",
    "basichandlers",
    "gzfilter",
    "handle_extension",
    "imagehandler",
    "imagespecs",
    "torch_loads",
]
