"""Image columns (pil, jpeg, png and lists of them) for streamplug, through Pillow.

`ImageArrays` decodes them to arrays, `RandomResizedCrop` random parts of them, and `decode_jpegs` decodes
files on a CUDA device. They are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_image.arrays import ImageArrays
    from streamplug_image.crops import RandomResizedCrop
    from streamplug_image.device_jpegs import decode_jpegs
    from streamplug_image.image_files import ImageFiles

__all__ = ["ImageArrays", "ImageFiles", "RandomResizedCrop", "decode_jpegs"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name
    _MODULES = {
        "ImageArrays": "arrays",
        "ImageFiles": "image_files",
        "RandomResizedCrop": "crops",
        "decode_jpegs": "device_jpegs",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'streamplug_image' has no attribute {name!r}")
        return getattr(import_module(f"streamplug_image.{_MODULES[name]}"), name)
