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
