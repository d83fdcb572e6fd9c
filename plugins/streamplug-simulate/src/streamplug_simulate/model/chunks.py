"""Chunks: an epoch that is asked for many steps of a rank at once, which its workers then share."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from streamplug.plan import Epoch, Place
from streamplug.types import Int64, World

_SAMPLES = 4096
_KEPT = 8
"""Chunks of each rank that are kept: its workers are at different steps."""


class Chunks(Epoch):
    """An epoch; a shuffle takes hardly longer for some thousand samples of a rank than for a few."""

    def __init__(self, epoch: Epoch, world: World, batch: int) -> None:
        """Ask `epoch`, of this world and batch size alone."""
        self.steps = epoch.steps
        self._epoch, self._batch = epoch, batch
        self._world = replace(world, rank=0, worker=0)
        self._each = max(_SAMPLES // batch, 1)
        self._chunk = lru_cache(_KEPT * world.ranks)(self._asked)

    def _asked(self, rank: int, chunk: int) -> Int64:
        steps = np.arange(chunk * self._each, min((chunk + 1) * self._each, self.steps))
        return self._epoch.ids(replace(self._world, rank=rank), self._batch, steps)

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        """Return the sample ids of a rank's batches, as `Epoch.ids`."""
        chunks, places = np.divmod(steps, self._each)
        found = np.empty((len(steps), batch), np.int64)
        for chunk in np.unique(chunks).tolist():
            some = chunks == chunk
            found[some] = self._chunk(world.rank, chunk)[places[some]]
        return found

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        """Return where a sample is handed out, as `Epoch.where`."""
        return self._epoch.where(world, batch, sample)
