"""Guesses where samples of an MDS shard lie, before its head has been read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamplug.builtin.formats.mds_reader import head_size
from streamplug.interfaces import Column
from streamplug.types import Int64

_WHOLE = 32 << 10
"""Bytes of a shard up to which all of it comes at once."""

_SLACK = 4 << 10
"""Bytes on either side of a guess: for sizes that differ little, and for the schema behind the head."""


def estimate_ranges(samples: int, size: int, rows: Int64, columns: Sequence[Column]) -> Int64:
    """Return where samples lie: exactly if all columns are of fixed size, else if all are about as long.

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
    # Counted from the end, where the length of the schema, which the index does not tell, matters least.
    mean = (size - head_size(samples)) / max(samples, 1)
    about = size - (samples - rows) * mean
    ranges = np.stack([about - _SLACK, about + mean + _SLACK], axis=1)
    return np.rint(ranges).astype(np.int64)
