"""JPEG files that look about like photographs, which all programs here that decode images share."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image

DISTINCT = 64


def photograph(rng: np.random.Generator, size: tuple[int, int]) -> Image.Image:
    """Smooth shapes of several scales, and a little noise."""
    width, height = size
    pixels = rng.normal(128, 4, (height, width, 3))
    for cells, strength in ((4, 1.0), (16, 0.5), (64, 0.25)):
        small = rng.integers(0, 256, (cells, cells, 3), np.uint8)
        smooth = Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)
        pixels += (np.asarray(smooth, np.float32) - 128) * strength
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@cache
def distinct_files(size: tuple[int, int], quality: int, count: int) -> list[bytes]:
    rng = np.random.default_rng(quality)
    files = []
    for _ in range(count):
        out = io.BytesIO()
        photograph(rng, size).save(out, "JPEG", quality=quality)
        files.append(out.getvalue())
    return files


def files_of(size: tuple[int, int], quality: int, count: int) -> list[bytes]:
    """Return JPEG files of one size; after some distinct ones, they repeat."""
    distinct = distinct_files(size, quality, min(count, DISTINCT))
    # Copies, so that nobody finds them in the processor's caches.
    return [bytes(bytearray(distinct[i % len(distinct)])) for i in range(count)]
