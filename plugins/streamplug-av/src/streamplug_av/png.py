"""Pictures of values, as PNG files, for notebooks and reports."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

_WAVEFORM_SIZE = (64, 256)


def frame_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of an image of shape ``[height, width, 3]``."""
    codec: Any = av.CodecContext.create("png", "w")
    codec.height, codec.width = pixels.shape[:2]
    codec.pix_fmt, codec.time_base = "rgb24", Fraction(1)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])


def waveform_png(samples: NDArray[np.float32]) -> bytes:
    """Return a PNG file of the lowest and highest amplitudes of samples, shape ``[channels, samples]``."""
    height, width = _WAVEFORM_SIZE
    pixels = np.full((height, width, 3), 255, np.uint8)
    mean = samples.mean(axis=0) if samples.size else np.zeros(1, np.float32)
    edges = np.linspace(0, len(mean), width + 1).astype(int)
    for x, (start, stop) in enumerate(pairwise(edges.tolist())):
        part = mean[start : max(stop, start + 1)]
        rows = (np.array([part.max(), part.min()]).clip(-1, 1) * -0.5 + 0.5) * (height - 1)
        pixels[int(rows[0]) : int(rows[1]) + 1, x] = (40, 90, 160)
    return frame_png(pixels)
