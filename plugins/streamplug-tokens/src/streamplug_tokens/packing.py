"""Bin packing of documents into rows: best fit, longest first, in groups of documents."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np

from streamplug.types import Int64


def pack_documents(
    offsets: Int64, length: int, documents_per_group: int, long_documents: str = "split"
) -> Int64:
    """Pack documents into rows.

    Args:
        offsets: Offset of each document in their concatenation, and the total, shape ``[documents + 1]``.
        length: Tokens of a row.
        documents_per_group: Consecutive documents that are packed together.
        long_documents: ``"split"``, ``"truncate"`` or ``"drop"``: what becomes of documents longer than a
            row.

    Returns:
        Three arrays in one: the number of rows; the first span of each row and the number of spans, shape
        ``[rows + 1]``; and the offset of each span. Rows are in the order of their first spans, the spans of
        a row in that of the documents. A span ends with its document or after `length` tokens.
    """
    bounds, spans, span_count = [np.zeros(1, np.int64)], [], 0
    for first in range(0, len(offsets) - 1, documents_per_group):
        group = np.asarray(offsets[first : first + documents_per_group + 1])
        spans_per_row, span_offsets = _pack_group(group, length, long_documents)
        bounds.append(span_count + np.cumsum(spans_per_row))
        spans.append(span_offsets)
        span_count += len(span_offsets)
    all_bounds = np.concatenate(bounds)
    return np.concatenate([[len(all_bounds) - 1], all_bounds, *spans]).astype(np.int64)


def _pack_group(offsets: Int64, length: int, long_documents: str) -> tuple[Int64, Int64]:
    """Return the number of spans of each row, and the offset of each span."""
    sizes = np.diff(offsets)
    full_rows, rest = np.divmod(sizes, length)
    if long_documents != "split":
        is_long = sizes > length
        full_rows[is_long], rest[is_long] = int(long_documents == "truncate"), 0
    # Full rows of long documents are one span each.
    document = np.repeat(np.arange(len(full_rows)), full_rows)
    row_in_document = np.arange(len(document)) - (np.cumsum(full_rows) - full_rows)[document]
    full = offsets[document] + row_in_document * length
    short = np.flatnonzero(rest)
    shared = offsets[short] + full_rows[short] * length
    shared_rows = _best_fit(rest[short], length) + len(full)
    span, row = np.concatenate([full, shared]), np.concatenate([np.arange(len(full)), shared_rows])
    if not len(span):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.full(int(row.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, row, span)
    order = np.lexsort((span, first[row]))
    return np.bincount(row)[np.argsort(first)], span[order]


def _best_fit(sizes: Int64, length: int) -> Int64:
    """Return the row of each size of at most `length`: the fullest row that has space for it."""
    order = np.argsort(-sizes, kind="stable")
    row_of = np.empty(len(sizes), np.int64)
    shift = len(sizes) + 1
    open_rows: list[int] = []  # space * shift + row, ascending
    row_count = 0
    for index, size in zip(order.tolist(), sizes[order].tolist()):
        fit = bisect_left(open_rows, size * shift)
        if fit < len(open_rows):
            space, row = divmod(open_rows.pop(fit), shift)
        else:
            space, row, row_count = length, row_count, row_count + 1
        row_of[index] = row
        if space > size:
            insort(open_rows, (space - size) * shift + row)
    return row_of
