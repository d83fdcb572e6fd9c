"""Histogram of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MAX_BINS = 30
_LOG_BINS_RATIO = 50
"""Bins grow geometrically where the maximum is this many times the median."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Histogram of numbers.

    Attributes:
        count: Number of values.
        total: Sum.
        least: Minimum.
        median: Median.
        most: Maximum.
        edges: Edges of the bins; the last is inclusive.
        counts: Values per bin.
        factors: Whether bins grow geometrically.
        whole: Whether all values are integers.
    """

    count: int
    total: float
    least: float
    median: float
    most: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    factors: bool
    whole: bool


def make_histogram(numbers: ArrayLike) -> Histogram | None:
    """Return the histogram of numbers, without those that are not finite.

    Args:
        numbers: Shape ``[n]``.

    Returns:
        None if there are none.
    """
    values = np.asarray(numbers, np.float64).reshape(-1)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    least, most, median = float(values.min()), float(values.max()), float(np.median(values))
    whole = bool((values == np.rint(values)).all())
    factors = least >= 0 and median > 0 and most > _LOG_BINS_RATIO * median
    edges = _edges(values, least, most, whole=whole, factors=factors)
    counts, _ = np.histogram(values, edges)
    return Histogram(
        len(values),
        float(values.sum()),
        least,
        median,
        most,
        tuple(edges.tolist()),
        tuple(counts.tolist()),
        factors,
        whole,
    )


def _edges(
    values: NDArray[Any], least: float, most: float, *, whole: bool, factors: bool
) -> NDArray[Any]:
    if least == most or not np.isfinite(most - least):
        return np.array([least, most])
    if factors:
        first = max(least, 1.0 if whole else float(values[values > 0].min()))
        edges = np.geomspace(first, most, _MAX_BINS + 1)
        edges[0], edges[-1] = least, most
        return np.unique(np.rint(edges)) if whole else np.unique(edges)
    if whole:
        width = max(int(np.ceil((most - least + 1) / _MAX_BINS)), 1)
        # The last edge is inclusive.
        return np.append(np.arange(least, most + 1, width), most + 1)
    return np.linspace(least, most, _MAX_BINS + 1)
