"""Which parts of a file to ask for, given the ones that are needed."""

from __future__ import annotations

import numpy as np

from streamplug.types import Int64


def coalesced(ranges: Int64, gap: int) -> tuple[Int64, Int64]:
    """Join ranges that are near each other: a request costs more than some bytes too many.

    Args:
        ranges: Where each begins and ends, shape ``[n, 2]``; in any order, they may overlap.
        gap: Bytes between two ranges up to which they are joined.

    Returns:
        The joined ranges, shape ``[m, 2]``, ascending; and where each of `ranges` begins once these lie
        back to back, shape ``[n]``.

    >>> coalesced(np.array([[90, 99], [0, 10], [12, 20]]), gap=4)
    (array([[ 0, 20],
           [90, 99]]), array([20,  0, 12]))
    """
    order = np.argsort(ranges[:, 0], kind="stable")
    starts, reach = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
    first = np.ones(len(order), bool)
    first[1:] = starts[1:] - reach[:-1] > gap
    begins = np.flatnonzero(first)
    spans = np.stack([starts[begins], reach[np.append(begins[1:], len(order)) - 1]], axis=1)
    bases = np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])])[:-1]
    span_of = np.cumsum(first) - 1
    places = np.empty(len(order), np.int64)
    places[order] = bases[span_of] + starts - spans[span_of, 0]
    return spans, places


def located(ranges: Int64, spans: Int64) -> Int64:
    """Find ranges in parts of a file that lie back to back.

    Args:
        ranges: Where each begins and ends in the file, shape ``[n, 2]``.
        spans: The same of the parts, shape ``[m, 2]``; ascending and apart.

    Returns:
        Where each begins in the parts, shape ``[n]``; -1 for one that is not whole in one of them.

    >>> located(np.array([[92, 95], [5, 12], [3, 5]]), np.array([[0, 10], [90, 99]]))
    array([12, -1,  3])
    """
    if not len(spans):
        return np.full(len(ranges), -1, np.int64)
    bases = np.cumsum(spans[:, 1] - spans[:, 0]) - (spans[:, 1] - spans[:, 0])
    part = np.maximum(np.searchsorted(spans[:, 0], ranges[:, 0], side="right") - 1, 0)
    inside = (ranges[:, 0] >= spans[part, 0]) & (ranges[:, 1] <= spans[part, 1])
    return np.where(inside, bases[part] + ranges[:, 0] - spans[part, 0], -1)
