"""Packs documents into rows: best fit, the longest first, group by group."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from streamplug.types import Int64


def packed(ends: Int64, width: int, group: int) -> Int64:
    """Pack documents into rows.

    Args:
        ends: Where each document begins in their concatenation, and the end, shape ``[documents + 1]``.
        width: Tokens of a row.
        group: Documents that are packed together, one after the other.

    Returns:
        The number of rows; where the pieces of each begin among all, and their number, shape
        ``[rows + 1]``; and where each piece begins in the concatenation. Rows are in the order of their first
        pieces, pieces of a row in that of the documents. A piece ends with its document or after `width`.
    """
    bounds, places, before = [np.zeros(1, np.int64)], [], 0
    for first in range(0, len(ends) - 1, group):
        counts, found = _pack(np.asarray(ends[first : first + group + 1]), width)
        bounds.append(before + np.cumsum(counts))
        places.append(found)
        before += len(found)
    all_bounds = np.concatenate(bounds)
    return np.concatenate([[len(all_bounds) - 1], all_bounds, *places]).astype(np.int64)


def _pack(ends: Int64, width: int) -> tuple[Int64, Int64]:
    """Pack one group; returns the number of pieces of each row, and where each piece begins."""
    lengths = np.diff(ends)
    whole, rest = np.divmod(lengths, width)
    # Whole rows of long documents, each a piece of its own.
    document = np.repeat(np.arange(len(whole)), whole)
    among = np.arange(len(document)) - (np.cumsum(whole) - whole)[document]
    long = ends[document] + among * width
    short = np.flatnonzero(rest)
    places = ends[short] + whole[short] * width
    rows = _best_fit(rest[short], width) + len(long)
    place, row = np.concatenate([long, places]), np.concatenate([np.arange(len(long)), rows])
    if not len(place):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.full(int(row.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, row, place)
    order = np.lexsort((place, first[row]))
    return np.bincount(row)[np.argsort(first)], place[order]


def _best_fit(sizes: Int64, width: int) -> Int64:
    """Return the row of each size, of at most `width`: the fullest one that has room for it."""
    order = np.argsort(-sizes, kind="stable")
    found = np.empty(len(sizes), np.int64)
    shift = len(sizes) + 1
    open_rows: list[int] = []  # room * shift + row, ascending
    rows = 0
    for at, size in zip(order.tolist(), sizes[order].tolist()):
        fit = bisect_left(open_rows, size * shift)
        if fit < len(open_rows):
            room, row = divmod(open_rows.pop(fit), shift)
        else:
            room, row, rows = width, rows, rows + 1
        found[at] = row
        if room > size:
            insort(open_rows, (room - size) * shift + row)
    return found
