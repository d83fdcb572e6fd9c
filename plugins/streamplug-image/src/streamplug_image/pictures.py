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
        uint8, or uint16 for ``"I;16"``, shape ``[height, width, channels]``.

    Raises:
        DecodeError: If the image has more bits per value than the mode.
    """
    if mode == "I;16":
        pixels = _deep_array(picture)
    elif picture.mode in _DEEP:
        raise DecodeError(
            f"an image of mode {picture.mode} has values of more than 8 bits; read it with "
            "ImageArrays(mode='I;16'), or the column without a decoder"
        )
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
            "decoder"
        )
    deep: NDArray[np.uint16] = values.astype(np.uint16)
    return deep


def _converted(picture: Image.Image, mode: str) -> Image.Image:
    if picture.mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")  # Pillow warns if it converts directly to another mode
    return picture if picture.mode == mode else picture.convert(mode)
