"""Byte ranges of a file: merging them, and finding them in what was read."""

from __future__ import annotations

import numpy as np

from streamplug.types import Int64


def coalesce_ranges(ranges: Int64, gap: int) -> Int64:
    """Merge ranges that overlap or are at most `gap` bytes apart, to save requests.

    The ranges are start and stop offsets, shape ``[n, 2]``, in any order; the merged ones, shape ``[m, 2]``,
    are ascending.

    >>> coalesce_ranges(np.array([[90, 99], [0, 10], [12, 20]]), gap=4)
    array([[ 0, 20],
           [90, 99]])
    """
    if len(ranges) <= 1:
        return np.array(ranges, np.int64)
    order = np.argsort(ranges[:, 0], kind="stable")
    starts, reach = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
    first = np.ones(len(order), bool)
    first[1:] = starts[1:] - reach[:-1] > gap
    begins = np.flatnonzero(first)
    merged = np.empty((len(begins), 2), np.int64)
    merged[:, 0], merged[:-1, 1], merged[-1, 1] = starts[begins], reach[begins[1:] - 1], reach[-1]
    return merged


def total_bytes(ranges: Int64) -> int:
    """Return the bytes of ranges, start and stop offsets of shape ``[n, 2]``, together."""
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def locate_ranges(ranges: Int64, spans: Int64) -> tuple[Int64, Int64]:
    """Return the span that contains each range, -1 for none, and the offset in it, both of shape ``[n]``.

    The ranges are start and stop offsets, shape ``[n, 2]``; so are the spans, ``[m, 2]``, ascending and
    disjoint.

    >>> locate_ranges(np.array([[92, 95], [5, 12], [3, 5]]), np.array([[0, 10], [90, 99]]))
    (array([ 1, -1,  0]), array([2, 5, 3]))
    """
    if len(ranges) == len(spans) == 1:  # common: few samples of many shards
        (start, stop), (low, high) = ranges.tolist()[0], spans.tolist()[0]
        return np.array([0 if low <= start and stop <= high else -1]), np.array([start - low])
    if not len(spans):
        return np.full(len(ranges), -1, np.int64), np.zeros(len(ranges), np.int64)
    part = np.maximum(np.searchsorted(spans[:, 0], ranges[:, 0], side="right") - 1, 0)
    inside = (ranges[:, 0] >= spans[part, 0]) & (ranges[:, 1] <= spans[part, 1])
    return np.where(inside, part, -1), ranges[:, 0] - spans[part, 0]
