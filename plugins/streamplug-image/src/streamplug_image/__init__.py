"""Image columns (pil, jpeg, png and lists of them) for streamplug, through Pillow.

`ImageArrays` reads them as arrays. It is imported when it is first used, so that looking for plugins
stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_image.arrays import ImageArrays

__all__ = ["ImageArrays"]


if not TYPE_CHECKING:  # else any name would be one of the package

    def __getattr__(name: str) -> Any:
        if name != "ImageArrays":
            raise AttributeError(f"module 'streamplug_image' has no attribute {name!r}")
        from streamplug_image.arrays import ImageArrays

        return ImageArrays
