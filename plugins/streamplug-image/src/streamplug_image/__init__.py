"""Image columns (pil, jpeg, png and lists of them) for streamplug, through Pillow.

`ImageArrays` decodes them to arrays. It is imported on first use, to keep plugin discovery fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_image.arrays import ImageArrays

__all__ = ["ImageArrays"]


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        if name != "ImageArrays":
            raise AttributeError(f"module 'streamplug_image' has no attribute {name!r}")
        from streamplug_image.arrays import ImageArrays

        return ImageArrays
