"""Epoch that computes many steps of a rank at once and caches them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from streamplug.plan import Epoch, Place
from streamplug.types import Int64, World

_CHUNK_SAMPLES = 4096
_CACHED_CHUNKS_PER_RANK = 8
"""The workers of a rank are at different steps."""


class ChunkedEpoch(Epoch):
    """Epoch computed in chunks: a shuffle takes hardly longer for thousands of samples than for a few."""

    def __init__(self, epoch: Epoch, world: World) -> None:
        """Wrap `epoch` for one world."""
        self.units, self.global_batch = epoch.units, epoch.global_batch
        self._epoch, self._world = epoch, replace(world, rank=0, worker=0)
        self._steps = epoch.steps(world)
        self._chunk_steps = max(_CHUNK_SAMPLES // max(epoch.rows_per_step(world), 1), 1)
        self._chunk = lru_cache(_CACHED_CHUNKS_PER_RANK * world.ranks)(self._compute)

    def _compute(self, rank: int, chunk: int) -> tuple[Int64, Int64]:
        first = chunk * self._chunk_steps
        steps = np.arange(first, min(first + self._chunk_steps, self._steps))
        return self._epoch.ids(replace(self._world, rank=rank), steps)

    def units_per_step(self, world: World) -> int:
        return self._epoch.units_per_step(world)

    def steps(self, world: World) -> int:
        return self._epoch.steps(world)

    def rows_per_step(self, world: World) -> int:
        return self._epoch.rows_per_step(world)

    def where(self, world: World, sample: int) -> list[Place]:
        return self._epoch.where(world, sample)

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        chunks, rows = np.divmod(steps, self._chunk_steps)
        sizes, starts = np.empty_like(steps), np.empty_like(steps)
        parts, total = [np.empty(0, np.int64)], 0
        for number in np.unique(chunks).tolist():
            ids, offsets = self._chunk(world.rank, number)
            of_chunk = chunks == number
            starts[of_chunk] = offsets[rows[of_chunk]] + total
            sizes[of_chunk] = np.diff(offsets)[rows[of_chunk]]
            parts.append(ids)
            total += len(ids)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
        return np.concatenate(parts)[places], offsets
