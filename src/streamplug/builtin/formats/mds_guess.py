"""Guesses where samples of an MDS shard lie, before its head has been read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamplug.builtin.formats.mds_reader import head_size
from streamplug.interfaces import Column
from streamplug.types import Int64

_WHOLE = 256 << 10
"""Bytes of a shard up to which all of it comes at once."""

_CONFIG = 2 << 10
"""About what the schema between head and samples takes at most, which the index does not tell."""

_SLACK = 64 << 10
"""Bytes on either side of a guess, at most."""


def likely_ranges(samples: int, size: int, rows: Int64, columns: Sequence[Column]) -> Int64:
    """Return where samples lie: exactly if all columns are of fixed size, else in all likelihood.

    Args:
        samples: How many the shard has.
        size: Bytes of the file.
        rows: Which, shape ``[n]``.
        columns: All columns of the shard.

    Returns:
        Where each begins and ends, shape ``[n, 2]``; not necessarily within the file.
    """
    fixed = [column.encoding.size for column in columns]
    if None not in fixed:
        length = sum(each or 0 for each in fixed)
        starts = size - (samples - rows) * length
        return np.stack([starts, starts + length], axis=1)
    if size <= _WHOLE:
        return np.tile(np.array([0, size], np.int64), (len(rows), 1))
    # Counted from the end, the error of an average that knows no schema is smallest where most rows are.
    mean = (size - head_size(samples)) / max(samples, 1)
    about = size - (samples - rows) * mean
    # How far sums of so many sizes stray if these differ by half of their average, twice over.
    stray = mean * np.sqrt(rows * (samples - rows) / max(samples, 1))
    slack = np.minimum(_CONFIG + stray, _SLACK)
    ranges = np.stack([about - slack, about + mean + slack], axis=1)
    return np.rint(ranges).astype(np.int64)
