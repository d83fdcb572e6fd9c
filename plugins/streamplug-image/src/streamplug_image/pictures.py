"""Pixels of images that Pillow opened."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamplug.errors import DecodeError

CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "I;16": 1}
"""Channels by mode of the arrays."""

_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


def picture_array(picture: Image.Image, mode: str) -> NDArray[Any]:
    """Return the pixels of an image, converted to a mode.

    Args:
        picture: The image.
        mode: One of `CHANNELS`.

    Returns:
        uint8, or uint16 for ``"I;16"``, shape ``[height, width, channels]``. Grey values of 16 bits become
        8 bits by rounding: 65535 becomes 255, as the other way round.

    Raises:
        DecodeError: If the image has values that are not of 8 or 16 bits.
    """
    pixels: NDArray[Any]
    if mode == "I;16":
        pixels = _deep_array(picture)
    elif picture.mode in _DEEP:
        # In uint32, as 65535 + 128 is no uint16.
        grey = ((_deep_array(picture) + np.uint32(128)) // 257).astype(np.uint8)
        pixels = np.array(_converted(Image.fromarray(grey), mode))
    else:
        pixels = np.array(_converted(picture, mode))
    return pixels.reshape(picture.height, picture.width, CHANNELS[mode])


def _deep_array(picture: Image.Image) -> NDArray[np.uint16]:
    if picture.mode not in _DEEP:
        grey: NDArray[np.uint16] = np.array(_converted(picture, "L"), np.uint16)
        grey *= np.uint16(257)  # 255 becomes 65535
        return grey
    values: NDArray[Any] = np.array(picture)
    if picture.mode == "F" or not 0 <= values.min() <= values.max() <= 65535:
        raise DecodeError(
            f"an image of mode {picture.mode} has values that are not of 16 bits; read the column without a "
            "decoder, and convert it"
        )
    deep: NDArray[np.uint16] = values.astype(np.uint16)
    return deep


def _converted(picture: Image.Image, mode: str) -> Image.Image:
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # Pillow warns if it converts directly to another mode
    return picture if picture.mode == mode else picture.convert(mode)
