"""Estimates of the byte ranges of MDS samples, before the header has been read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamplug.builtin.formats.mds_reader import head_size
from streamplug.interfaces import Column
from streamplug.types import Int64

_WHOLE = 32 << 10
"""Size up to which a shard is read as a whole."""

_SLACK = 4 << 10
"""Bytes added on either side of an estimate, for differing sample sizes and the schema behind the header."""


def estimate_ranges(samples: int, size: int, rows: Int64, columns: Sequence[Column]) -> Int64:
    """Return the estimated byte ranges of samples in the file, int64, shape ``[n, 2]``.

    They are exact if all columns have fixed size, else based on the mean sample size, and may exceed the
    file.

    Args:
        samples: Number of samples in the shard.
        size: Bytes of the file.
        rows: Sample numbers, shape ``[n]``.
        columns: All columns of the shard.
    """
    fixed = [column.encoding.size for column in columns]
    if None not in fixed:
        length = sum(each or 0 for each in fixed)
        starts = size - (samples - rows) * length
        return np.stack([starts, starts + length], axis=1)
    if size <= _WHOLE:
        return np.tile(np.array([0, size], np.int64), (len(rows), 1))
    # Relative to the end, where the unknown length of the schema matters least.
    mean = (size - head_size(samples)) / max(samples, 1)
    about = size - (samples - rows) * mean
    ranges = np.stack([about - _SLACK, about + mean + _SLACK], axis=1)
    return np.rint(ranges).astype(np.int64)
