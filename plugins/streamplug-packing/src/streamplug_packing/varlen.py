"""What attention over sequences of varying length takes, where they follow each other in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.types import Int64


def varlen_columns(sizes: Int64 | Sequence[int]) -> dict[str, Any]:
    """Return the columns of sequences of some sizes that were concatenated.

    Returns:
        ``cu_seqlens`` (int32, shape ``[sequences + 1]``), the offset of each sequence, and the total;
        ``max_seqlen``, the largest size; and ``position_ids`` (int64, shape ``[total]``), counted from 0 in
        each sequence.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    return {
        "cu_seqlens": offsets.astype(np.int32),
        "max_seqlen": int(max(sizes)),
        "position_ids": positions,
    }
