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

    def __init__(self, epoch: Epoch, world: World, batch: int) -> None:
        """Wrap `epoch` for one world and batch size."""
        self.steps = epoch.steps
        self._epoch, self._batch = epoch, batch
        self._world = replace(world, rank=0, worker=0)
        self._chunk_steps = max(_CHUNK_SAMPLES // batch, 1)
        self._chunk = lru_cache(_CACHED_CHUNKS_PER_RANK * world.ranks)(self._compute)

    def _compute(self, rank: int, chunk: int) -> Int64:
        steps = np.arange(
            chunk * self._chunk_steps, min((chunk + 1) * self._chunk_steps, self.steps)
        )
        return self._epoch.ids(replace(self._world, rank=rank), self._batch, steps)

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the sample ids of a rank's batches, as `Epoch.ids`."""
        chunks, places = np.divmod(steps, self._chunk_steps)
        parts = {chunk: self._chunk(world.rank, chunk) for chunk in np.unique(chunks).tolist()}
        # Batches may vary in size, and chunks then differ in width.
        width = max((part.shape[1] for part in parts.values()), default=batch)
        ids = np.full((len(steps), width), -1, np.int64)
        for chunk, part in parts.items():
            rows = chunks == chunk
            ids[rows, : part.shape[1]] = part[places[rows]]
        return ids

    def rows_per_step(self, batch: int) -> int:
        """Return the approximate number of samples of a rank's batch, as `Epoch.rows_per_step`."""
        return self._epoch.rows_per_step(batch)

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        """Return where a sample is handed out, as `Epoch.where`."""
        return self._epoch.where(world, batch, sample)
