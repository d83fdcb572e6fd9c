"""Resizing of pixels: bilinear, with a filter as wide as the reduction, so that no pixels are skipped."""

from __future__ import annotations

from math import ceil
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from streamplug_image.fit import Box

Pixels: TypeAlias = NDArray[Any]

RESAMPLERS = ("pillow", "torch")
"""Libraries that resize: torch is faster, and rounds some values to the next number."""


def resize_pixels(pixels: Pixels, box: Box, to: tuple[int, int], resampler: str) -> Pixels:
    """Resize a part of an image, of which no pixels beside it are used.

    Args:
        pixels: uint8 or uint16, shape ``[height, width, channels]``.
        box: Left, top, right and bottom edge of the part; edges of torch's are whole, or Pillow resizes.
        to: Height and width of the result.
        resampler: One of `RESAMPLERS`.

    Returns:
        Values of the same dtype, shape ``[*to, channels]``.
    """
    left, top = int(box[0]), int(box[1])
    right, bottom = ceil(box[2]), ceil(box[3])
    part = pixels[top:bottom, left:right]
    if box == (left, top, right, bottom):
        if part.shape[:2] == to:
            return part
        # Pillow weights colours by alpha, and torch has no 16 bits.
        if resampler == "torch" and part.dtype == np.uint8 and part.shape[2] < 4:
            return _resize_by_torch(part, to)
    plane = part if part.shape[2] > 1 else part[..., 0]
    picture = Image.fromarray(plane.astype(np.float32) if plane.dtype == np.uint16 else plane)
    edges = box[0] - left, box[1] - top, box[2] - left, box[3] - top
    resized = picture.resize((to[1], to[0]), Image.Resampling.BILINEAR, edges)
    values: Pixels = np.array(resized).reshape(*to, part.shape[2])
    return values if values.dtype == part.dtype else np.rint(values).astype(part.dtype)


def _resize_by_torch(part: Pixels, to: tuple[int, int]) -> Pixels:
    import torch
    from torch.nn.functional import interpolate

    # With these strides, also that of the first axis, torch takes and gives channels last, twice as fast.
    batch = np.ascontiguousarray(part).reshape(1, *part.shape)
    resized = interpolate(
        torch.from_numpy(batch).permute(0, 3, 1, 2), to, mode="bilinear", antialias=True
    )
    result: Pixels = resized[0].permute(1, 2, 0).numpy()
    return result
