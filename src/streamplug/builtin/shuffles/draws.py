"""Random numbers of `window`: a generator of its own for every thing that is drawn."""

from __future__ import annotations

import numpy as np

# What a stream of random numbers is for: part of its key, so that no two uses share one. `global` has the 4.
SHARDS, PIECES, FIRST, SECOND, MEMBERS, SPANS = range(6)


def generator(
    seed: int, epoch: int, use: int, canonical_node: int, block: int
) -> np.random.Generator:
    """Return a generator of its own for every combination of arguments."""
    # The low word of the counter counts draws; the others and the key tell the streams apart.
    key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
    return np.random.Generator(np.random.Philox(counter=[0, block, canonical_node, use], key=key))
