"""Image columns (pil, jpeg, png and lists of them) for streamplug, through Pillow.

`ImageArrays` decodes them to arrays, `RandomResizedCrop` random parts of them, and `decode_jpegs` decodes
files on a CUDA device. They are imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

if TYPE_CHECKING:
    from streamplug_image.arrays import ImageArrays as ImageArrays
    from streamplug_image.crops import RandomResizedCrop as RandomResizedCrop
    from streamplug_image.device_jpegs import decode_jpegs as decode_jpegs
    from streamplug_image.image_files import ImageFiles as ImageFiles
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "arrays": "ImageArrays",
            "crops": "RandomResizedCrop",
            "device_jpegs": "decode_jpegs",
            "image_files": "ImageFiles",
        },
    )
