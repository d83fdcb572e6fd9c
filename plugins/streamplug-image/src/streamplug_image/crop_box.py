"""Random boxes in images, as torchvision's RandomResizedCrop draws them."""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from streamplug_image.fit import Box

_ATTEMPTS = 10


def draw_box(
    size: tuple[int, int],
    rng: np.random.Generator,
    scale: tuple[float, float],
    ratio: tuple[float, float],
) -> Box:
    """Draw a box of whole pixels: its share of the area, then its width by its height, then its place.

    Sizes that the image does not have room for are drawn again, ten times in all; then the box is the largest
    in the center of the image whose ratio is permitted.

    Args:
        size: Height and width of the image.
        rng: Of each attempt, two floats; then a row and a column.
        scale: Least and largest share of the area.
        ratio: Least and largest width by height.

    Returns:
        Left, top, right and bottom edge.
    """
    high, wide = size
    low, up = log(ratio[0]), log(ratio[1])
    for _ in range(_ATTEMPTS):
        area = high * wide * rng.uniform(*scale)
        aspect = exp(rng.uniform(low, up))
        width, height = round(sqrt(area * aspect)), round(sqrt(area / aspect))
        if 0 < width <= wide and 0 < height <= high:
            top = int(rng.integers(0, high - height + 1))
            left = int(rng.integers(0, wide - width + 1))
            return left, top, left + width, top + height
    width, height = wide, high
    if wide / high < ratio[0]:
        height = max(min(round(wide / ratio[0]), high), 1)
    elif wide / high > ratio[1]:
        width = max(min(round(high * ratio[1]), wide), 1)
    left, top = (wide - width) // 2, (high - height) // 2
    return left, top, left + width, top + height
