"""Which positions of an epoch belong to which rank and worker, in closed form.

Global batch ``t`` is the flat positions ``[t * G, (t + 1) * G)``. Of these, node ``n`` of ``P``
takes every P-th starting with the n-th, and its rank ``r`` of ``R`` every R-th of those. The
workers of a rank take its batches in turn.
"""

from __future__ import annotations

import numpy as np

from streamplug.types import Int64, World


def worker_steps(world: World, first: int, steps: int) -> Int64:
    """Return the steps that a worker serves, from step `first` on, of `steps` in the epoch."""
    return np.arange(first + world.worker, steps, world.workers_per_rank, dtype=np.int64)


def positions(world: World, batch_size: int, steps: Int64) -> Int64:
    """Return the flat positions of a rank's batches.

    Args:
        world: Says which rank.
        batch_size: Samples per batch of one rank.
        steps: Which global batches, shape ``[n]``.

    Returns:
        int64, shape ``[n, batch_size]``.
    """
    place = world.node + world.nodes * (
        world.rank_of_node + world.ranks_per_node * np.arange(batch_size, dtype=np.int64)
    )
    return steps[:, None] * (batch_size * world.ranks) + place
