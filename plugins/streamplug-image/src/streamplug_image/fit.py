"""Geometry of image resizing."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

FITS = ("stretch", "crop", "pad")


class Fit(NamedTuple):
    """Part of an image that is shown, and its place in the result.

    Attributes:
        box: Left, top, right and bottom edge of the shown part, in pixels of the image.
        shown: Top, left, height and width of its place, in pixels of the result.
    """

    box: tuple[float, float, float, float]
    shown: tuple[int, int, int, int]

    def needed(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the minimum height and width of a downscaled image that needs no upscaling.

        Args:
            size: Height and width of the image; never exceeded.
        """
        left, top, right, bottom = self.box
        _, _, height, width = self.shown
        # Rounding errors of the box edges must not add a line.
        high = ceil(size[0] * height / (bottom - top) - 1e-6)
        wide = ceil(size[1] * width / (right - left) - 1e-6)
        return min(high, size[0]), min(wide, size[1])

    def whole(self, size: tuple[int, int]) -> bool:
        """Return whether an image of this height and width is shown completely."""
        return self.box == (0, 0, size[1], size[0])

    def scaled(self, size: tuple[int, int], to: tuple[int, int]) -> Fit:
        """Return the fit for an image that was scaled from one height and width to another."""
        if size == to:
            return self
        down, across = to[0] / size[0], to[1] / size[1]
        left, top, right, bottom = self.box
        return self._replace(box=(left * across, top * down, right * across, bottom * down))


def fit(size: tuple[int, int], to: tuple[int, int], how: str) -> Fit:
    """Return how to fit an image into another size.

    Args:
        size: Height and width of the image.
        to: Height and width of the result.
        how: ``"stretch"`` changes the aspect ratio; ``"crop"`` shows the center; ``"pad"`` shows the
            whole image in the center of the result.
    """
    (high, wide), (height, width) = size, to
    whole = (0.0, 0.0, float(wide), float(high))
    if how == "crop":
        scale = max(height / high, width / wide)
        box = min(width / scale, wide), min(height / scale, high)
        left, top = (wide - box[0]) / 2, (high - box[1]) / 2
        if scale == 1:  # pixels are copied: an offset of half a pixel would blur them
            left, top = left // 1, top // 1
        return Fit((left, top, left + box[0], top + box[1]), (0, 0, height, width))
    if how == "pad":
        scale = min(height / high, width / wide)
        shown = max(round(high * scale), 1), max(round(wide * scale), 1)
        return Fit(whole, ((height - shown[0]) // 2, (width - shown[1]) // 2, *shown))
    return Fit(whole, (0, 0, height, width))
