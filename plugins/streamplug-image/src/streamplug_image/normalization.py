"""Normalisation of pixels to floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Normalization:
    """Maps pixels to float32: divided by their largest value, minus a mean, divided by a deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], largest: int) -> None:
        """Take the mean and the deviation of each channel, as shares of the largest value."""
        deviations = np.asarray(std, np.float64)
        self._factors = (1 / (deviations * largest)).astype(np.float32)
        self._offsets = (-np.asarray(mean, np.float64) / deviations).astype(np.float32)
        self._row: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None

    def write(self, pixels: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the floats of pixels, shape ``[height, width, channels]``, to a contiguous array."""
        height, width, channels = pixels.shape
        # Whole rows at once: NumPy is slow where the last axis is short.
        if (row := self._row) is None or len(row[0]) != width * channels:
            self._row = row = np.tile(self._factors, width), np.tile(self._offsets, width)
        flat = out.reshape(height, width * channels)
        flat[...] = pixels.reshape(flat.shape)
        flat *= row[0]
        flat += row[1]
