"""Number of samples of each part of a job."""

from __future__ import annotations

_MAX_SHARDS = 8
"""Approximate shards of a part: few shards are smaller than the limit, and few parts are listed."""
_MIN_PARTS = 16
"""Parts from which on a part has several shards, so that few are written again after a kill."""
_FILL = 0.9
"""Share of the size limit that the average shard may reach, so that parts seldom end with a tiny shard."""
_MAX_SAMPLES = 1 << 20
"""Samples of a part whose samples are small; 2**20 take seconds."""


def samples_per_part(size: int, row_bytes: int, size_limit: int, processes: int | None) -> int:
    """Return the number of samples of each part but the last, at least 1.

    It depends on no property of this machine: a run that was killed may go on on another one.

    Args:
        size: Number of samples of the job.
        row_bytes: Average bytes of a sample.
        size_limit: Limit of a raw shard in bytes.
        processes: Number of processes that the user has chosen, each of which gets a part; None for any.

    >>> samples_per_part(1000, 100, 1 << 26, None), samples_per_part(1000, 100, 1 << 26, 4)
    (1000, 250)
    """
    shard_bytes = max(_FILL * size_limit, 1.0)
    num_shards = -(-size * row_bytes // shard_bytes)
    shards = min(max(-(-num_shards // _MIN_PARTS), 1), _MAX_SHARDS)
    samples = min(max(int(shards * shard_bytes // row_bytes), 1), _MAX_SAMPLES)
    parts = max(-(-size // samples), min(processes or 1, size), 1)
    return max(-(-size // parts), 1)
