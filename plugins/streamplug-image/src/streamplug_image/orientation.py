"""The orientation of photographs that their EXIF data states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base

from streamplug_image.fit import Box


def find_orientation(data: memoryview, opened: Callable[[memoryview], Image.Image]) -> int:
    """Return the orientation of an image file: 1 as stored, up to 8; 1 if it states none that is valid."""
    is_jpeg = bytes(data[:3]) == b"\xff\xd8\xff"
    if is_jpeg and not _may_have_exif(data):  # far faster than to open it
        return 1
    value = opened(data).getexif().get(Base.Orientation, 1)
    return value if value in range(1, 9) else 1


def _may_have_exif(data: memoryview) -> bool:
    """Return whether a JPEG file has EXIF data before its pixels, or is malformed there."""
    at = 2
    while (head := bytes(data[at : at + 9]))[:1] == b"\xff":
        marker = head[1:2]
        if marker == b"\xda":  # the pixels begin
            return False
        if marker == b"\xff" or (marker == b"\xe1" and head[4:] == b"Exif\0"):
            return True
        at += 2 + int.from_bytes(head[2:4], "big")
    return True


def oriented_size(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return height and width of an image that is turned, or those of one before that."""
    return size if orientation < 5 else size[::-1]


def stored_box(box: Box, size: tuple[int, int], orientation: int) -> Box:
    """Return where a box of a turned image lies in the image as it is stored.

    Args:
        box: Left, top, right and bottom edge in the turned image.
        size: Height and width as stored.
        orientation: As of `find_orientation`.
    """
    left, top, right, bottom = box
    if orientation > 4:
        left, top, right, bottom = top, left, bottom, right
    high, wide = size
    if orientation in (2, 3, 7, 8):
        left, right = wide - right, wide - left
    if orientation in (3, 4, 6, 7):
        top, bottom = high - bottom, high - top
    return left, top, right, bottom


def orient(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return a view of stored pixels, shape ``[height, width, channels]``, turned and mirrored as stated."""
    if orientation in (2, 3, 7, 8):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 6, 7):
        pixels = pixels[::-1]
    return pixels if orientation < 5 else pixels.swapaxes(0, 1)


def turn_back(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Return a view of turned pixels as they are stored: the inverse of `orient`."""
    return orient(pixels, {6: 8, 8: 6}.get(orientation, orientation))
