"""Resolution of indices, slices and lists of indices to sample ids."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from streamplug.types import Int64


def resolve_index(at: SupportsIndex, size: int) -> int:
    """Return the sample id of an index into `size` samples; negative ones count from the end."""
    number: Any = None if isinstance(at, bool) else at  # bool is a subclass of int
    try:
        at = index(number)
    except TypeError:
        raise IndexError(f"samples are chosen by whole numbers, got {at!r:.60}") from None
    if not -size <= at < size:
        raise IndexError(f"sample {at} of a data set with {size} samples")
    return at % size


def resolve_indices(at: slice | Sequence[int] | Int64, size: int) -> Int64:
    """Return the sample ids of many indices, shape ``[n]``; see `resolve_index`."""
    ids = np.arange(*at.indices(size)) if isinstance(at, slice) else np.asarray(at)
    if ids.size and ids.dtype.kind not in "iu":
        raise IndexError(f"samples are chosen by whole numbers, got {ids.dtype} in {at!r:.60}")
    if ids.size and (ids.max() >= size or ids.min() < -size):
        raise IndexError(f"samples {ids.min()} to {ids.max()} of a data set with {size}")
    return ids.astype(np.int64).reshape(-1) % max(size, 1)
