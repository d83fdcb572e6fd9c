"""Geometry of image resizing."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom edge of a part of an image, in pixels."""

FITS = ("stretch", "crop", "pad")


class Fit(NamedTuple):
    """Part of an image that is shown, and its place in the result.

    Attributes:
        box: Left, top, right and bottom edge of the shown part, in pixels of the image.
        shown: Top, left, height and width of its place, in pixels of the result.
        size: Height and width of the result.
    """

    box: Box
    shown: tuple[int, int, int, int]
    size: tuple[int, int]


def fit(
    size: tuple[int, int], to: tuple[int, int], how: str, shorter_side: int | None = None
) -> Fit:
    """Return how to fit an image into another size.

    Args:
        size: Height and width of the image.
        to: Height and width of the result.
        how: ``"stretch"`` changes the aspect ratio; ``"crop"`` shows the center; ``"pad"`` shows the
            whole image in the center of the result.
        shorter_side: With ``"crop"``, the shorter side of the image that the result is the center of, in
            pixels of the result; None for the least that the result fits in.
    """
    (high, wide), (height, width) = size, to
    whole = (0.0, 0.0, float(wide), float(high))
    if how == "crop":
        scale = max(height / high, width / wide, (shorter_side or 0) / min(size))
        box = min(width / scale, wide), min(height / scale, high)
        left, top = (wide - box[0]) / 2, (high - box[1]) / 2
        if scale == 1:  # pixels are copied: an offset of half a pixel would blur them
            left, top = left // 1, top // 1
        return Fit((left, top, left + box[0], top + box[1]), (0, 0, height, width), to)
    if how == "pad":
        scale = min(height / high, width / wide)
        shown = max(round(high * scale), 1), max(round(wide * scale), 1)
        edges = (height - shown[0]) // 2, (width - shown[1]) // 2
        return Fit(whole, (*edges, *shown), to)
    return Fit(whole, (0, 0, height, width), to)
