"""Order in which other samples of a step are tried in the place of one that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamplug.types import Int64


def order_substitutes(sample: int, ids: Int64, first_ids: Sequence[int]) -> Int64:
    """Return the samples that may take the place of `sample`, in the order in which they are tried.

    Those of the same stream come first, from half of them further on in cyclic order, so that neighbours,
    which one damaged shard may have, get different substitutes.

    Args:
        sample: The sample id, which is in `ids`.
        ids: Distinct sample ids of the step, ascending, shape ``[n]``.
        first_ids: First sample id of each stream, and the total.

    Returns:
        Sample ids, shape ``[n - 1]``.
    """
    streams = np.searchsorted(first_ids, ids, side="right")
    is_same = streams == np.searchsorted(first_ids, sample, side="right")
    same, other = ids[is_same], ids[~is_same]
    same = np.roll(same, -(int(np.searchsorted(same, sample)) + len(same) // 2))
    other = np.roll(other, -int(np.searchsorted(other, sample)))
    return np.concatenate([same[same != sample], other])
