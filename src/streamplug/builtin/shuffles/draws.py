"""Random number generators of the shuffle `window`, one for every use."""

from __future__ import annotations

import numpy as np

# Uses of random streams: part of the key, so that no two uses of one shuffle share a stream.
SHARDS, PIECES, FIRST, SECOND, MEMBERS, SPANS = range(6)


def generator(
    seed: int, epoch: int, use: int, canonical_node: int, block: int
) -> np.random.Generator:
    """Return an independent generator for every combination of arguments."""
    # The low word of the counter counts draws; the other words and the key distinguish the streams.
    key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(counter=[0, block, canonical_node, use], key=key))
