"""Decoding of JPEG files, or parts of them, at the scale that is needed."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from streamplug_image.fit import Box
from streamplug_image.libturbojpeg import decode_region, load_library
from streamplug_image.pictures import CHANNELS

SPACES = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}
"""simplejpeg's names of colour spaces by mode of the arrays."""

_ORDINARY = ("YCbCr", "RGB", "Gray")
JPEG_END = b"\xff\xd9"
"""Last bytes of a complete JPEG file."""

_MARGIN = 2
"""Pixels beside a part, so that colours at its edges are interpolated as within the image."""

_MAX_PART = 0.9
"""Share of the pixels of an image above which the whole is decoded."""


class JpegPart(NamedTuple):
    """Decoded pixels that contain a box.

    Attributes:
        pixels: uint8, shape ``[height, width, channels]``.
        box: Left, top, right and bottom edge of the box in `pixels`.
    """

    pixels: NDArray[np.uint8]
    box: Box


class JpegHeader(NamedTuple):
    """What the header of a JPEG file says.

    Attributes:
        size: Height and width.
        space: simplejpeg's name of the colour space.
    """

    size: tuple[int, int]
    space: str


def read_header(data: memoryview) -> JpegHeader | None:
    """Return the header of a JPEG file, or None if it is malformed."""
    try:
        high, wide, space, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    return JpegHeader((int(high), int(wide)), space)


def decode_jpeg(
    data: memoryview,
    header: JpegHeader,
    mode: str,
    box: Box,
    to: tuple[int, int],
    *,
    halves: bool,
    out: NDArray[np.uint8] | None,
) -> JpegPart | None:
    """Decode a box of a JPEG file, scaled by eighths to no less than a size.

    Args:
        data: The file.
        header: Its header.
        mode: One of `SPACES`.
        box: Left, top, right and bottom edge, in pixels.
        to: Height and width that the scaled box must have at least, unless it is smaller in the file.
        halves: Whether to scale by powers of 2 only, which is the fastest per pixel.
        out: Contiguous array to write to if its shape is that of the whole, scaled image.

    Returns:
        The pixels, or None if Pillow must decode the file.
    """
    (high, wide), space = header
    if space not in _ORDINARY:
        return None
    eighths = _eighths(box, to, (1, 2, 4, 8) if halves else range(1, 9))
    if _share(box, high * wide) <= _MAX_PART and bytes(data[-2:]) == JPEG_END and load_library():
        part = _decode_part(data, mode, box, eighths, (high, wide))
        if part is not None:
            return part
    # The least height and width that only this scale, and larger ones, have.
    least = (0, 0) if eighths == 8 else (ceil(high * eighths / 8), ceil(wide * eighths / 8))
    if out is not None and out.shape[:2] != (least if any(least) else (high, wide)):
        out = None
    try:
        pixels = simplejpeg.decode_jpeg(
            data, SPACES[mode], min_height=least[0], min_width=least[1], buffer=out
        )
    except ValueError:  # simplejpeg raises on warnings of libjpeg-turbo
        return None
    return JpegPart(pixels, _scaled(box, (high, wide), eighths, pixels.shape[:2]))


def _decode_part(
    data: memoryview, mode: str, box: Box, eighths: int, size: tuple[int, int]
) -> JpegPart | None:
    """Decode what surrounds a box, by a library that decodes no more than that."""
    limits = ceil(size[0] * eighths / 8), ceil(size[1] * eighths / 8)
    left, top, right, bottom = (edge * eighths / 8 for edge in box)
    step = 4 * eighths
    x, y = max(int(left) - _MARGIN, 0) // step * step, max(int(top) - _MARGIN, 0)
    width = min(ceil(right) + _MARGIN, limits[1]) - x
    height = min(ceil(bottom) + _MARGIN, limits[0]) - y
    pixels = np.empty((height, width, CHANNELS[mode]), np.uint8)
    if not decode_region(data, mode, eighths, (x, y, width, height), pixels):
        return None
    return JpegPart(pixels, (left - x, top - y, min(right - x, width), min(bottom - y, height)))


def _share(box: Box, pixels: int) -> float:
    return (box[2] - box[0]) * (box[3] - box[1]) / pixels


def _eighths(box: Box, to: tuple[int, int], scales: range | tuple[int, ...]) -> int:
    """Return the smallest of some scales, in eighths, at which a box has a size; the last if none has."""
    wide, high = box[2] - box[0], box[3] - box[1]
    # Rounding errors of the edges must not ask for the next scale.
    least = 8 * max(to[0] / high, to[1] / wide) - 1e-6
    return next((scale for scale in scales if scale >= least), 8)


def _scaled(box: Box, size: tuple[int, int], eighths: int, to: tuple[int, ...]) -> Box:
    """Return a box of an image of one size in the image of another, which may have a part of a pixel more."""
    if box == (0, 0, size[1], size[0]):
        return 0, 0, to[1], to[0]
    left, top, right, bottom = (edge * eighths / 8 for edge in box)
    return left, top, min(right, to[1]), min(bottom, to[0])
