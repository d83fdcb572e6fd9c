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
        total: Sum; infinite if it is too large for a float.
        minimum: Minimum.
        median: Median.
        maximum: Maximum.
        edges: Edges of the bins; the last is inclusive.
        counts: Values per bin.
        factors: Whether bins grow geometrically.
        whole: Whether all values are integers.
    """

    count: int
    total: float
    minimum: float
    median: float
    maximum: float
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
    minimum, maximum = float(values.min()), float(values.max())
    with np.errstate(over="ignore"):
        total, median = float(values.sum()), float(np.median(values))
    if not np.isfinite(median):  # the sum of the two middle values is too large
        median = 2 * float(np.median(values / 2))
    whole = bool((values == np.rint(values)).all())
    factors = minimum >= 0 and median > 0 and maximum > _LOG_BINS_RATIO * median
    edges = _edges(values, minimum, maximum, whole=whole, factors=factors)
    counts, _ = np.histogram(values, edges)
    return Histogram(
        len(values),
        total,
        minimum,
        median,
        maximum,
        tuple(edges.tolist()),
        tuple(counts.tolist()),
        factors,
        whole,
    )


def _edges(
    values: NDArray[Any], minimum: float, maximum: float, *, whole: bool, factors: bool
) -> NDArray[Any]:
    if minimum == maximum or not np.isfinite(maximum - minimum):
        return np.array([minimum, maximum])
    if factors:
        first = max(minimum, 1.0 if whole else float(values[values > 0].min()))
        edges = np.geomspace(first, maximum, _MAX_BINS + 1)
        edges[0], edges[-1] = minimum, maximum
        return np.unique(np.rint(edges)) if whole else np.unique(edges)
    if whole:
        width = max(int(np.ceil((maximum - minimum + 1) / _MAX_BINS)), 1)
        # The last edge is inclusive.
        return np.append(np.arange(minimum, maximum + 1, width), maximum + 1)
    return np.linspace(minimum, maximum, _MAX_BINS + 1)
