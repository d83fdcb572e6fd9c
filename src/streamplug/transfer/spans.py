"""Which parts of a file to ask for, given the ones that are needed."""

from __future__ import annotations

import numpy as np

from streamplug.types import Int64


def coalesce_ranges(ranges: Int64, gap: int) -> Int64:
    """Join ranges that are near each other: a request costs more than some bytes too many.

    Args:
        ranges: Where each begins and ends, shape ``[n, 2]``; in any order, they may overlap.
        gap: Bytes between two ranges up to which they are joined.

    Returns:
        The joined ranges, shape ``[m, 2]``, ascending.

    >>> coalesce_ranges(np.array([[90, 99], [0, 10], [12, 20]]), gap=4)
    array([[ 0, 20],
           [90, 99]])
    """
    if len(ranges) == 1:
        return np.array(ranges, np.int64)
    order = np.argsort(ranges[:, 0], kind="stable")
    starts, reach = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
    first = np.ones(len(order), bool)
    first[1:] = starts[1:] - reach[:-1] > gap
    begins = np.flatnonzero(first)
    found = np.empty((len(begins), 2), np.int64)
    found[:, 0], found[:-1, 1], found[-1, 1] = starts[begins], reach[begins[1:] - 1], reach[-1]
    return found


def locate_ranges(ranges: Int64, spans: Int64) -> tuple[Int64, Int64]:
    """Find ranges in parts of a file.

    Args:
        ranges: Where each begins and ends in the file, shape ``[n, 2]``.
        spans: The same of the parts, shape ``[m, 2]``; ascending and apart.

    Returns:
        Which part each is in, -1 for one that is not whole in one of them, and where in that it begins,
        both of shape ``[n]``.

    >>> locate_ranges(np.array([[92, 95], [5, 12], [3, 5]]), np.array([[0, 10], [90, 99]]))
    (array([ 1, -1,  0]), array([2, 5, 3]))
    """
    if len(ranges) == len(spans) == 1:  # as where few samples of many shards are wanted
        (start, stop), (low, high) = ranges.tolist()[0], spans.tolist()[0]
        return np.array([0 if low <= start and stop <= high else -1]), np.array([start - low])
    if not len(spans):
        return np.full(len(ranges), -1, np.int64), np.zeros(len(ranges), np.int64)
    part = np.maximum(np.searchsorted(spans[:, 0], ranges[:, 0], side="right") - 1, 0)
    inside = (ranges[:, 0] >= spans[part, 0]) & (ranges[:, 1] <= spans[part, 1])
    return np.where(inside, part, -1), ranges[:, 0] - spans[part, 0]
