"""Counts epochs for all workers of a rank without a word between them.

Loader workers, persistent or not, come and go while the rank's main process knows nothing of it. So
each has a cell of its own in memory that all share, and adds one to it when it begins an epoch.
Nobody ever writes another's cell, except the main process when it loads a state.
"""

from __future__ import annotations

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

MAX_WORKERS = 256

_EPOCH, _STEP, _COUNTS = 0, 1, 2

CELLS = _COUNTS + 1 + MAX_WORKERS * (MAX_WORKERS + 1) // 2
"""How many int64 a clock needs."""


class EpochClock:
    """Says which epoch comes next, and with which step it begins."""

    def __init__(self, cells: Int64) -> None:
        """Count in `cells`: int64, shape ``[CELLS]``, zeros at first; shared by all workers."""
        self._cells = cells

    def __getstate__(self) -> tuple[int, int]:
        # A copy counts for itself, from the next epoch on.
        return self.next()

    def __setstate__(self, state: tuple[int, int]) -> None:
        self._cells = private_cells()
        self.set(*state)

    def set(self, epoch: int, step: int) -> None:
        """Let the next epoch to begin be this one, from this step on."""
        self._cells[:] = 0
        self._cells[_EPOCH], self._cells[_STEP] = epoch, step

    def begin(self, workers: int, worker: int) -> tuple[int, int]:
        """Begin an epoch as one of so many workers (0 of 0: the rank's own process).

        Returns:
            The epoch and its first step.

        Raises:
            ConfigError: If there are too many workers.
        """
        if workers > MAX_WORKERS:
            raise ConfigError(f"{workers} workers per rank; at most {MAX_WORKERS} are supported")
        cell = _row(workers) + worker
        own, most = int(self._cells[cell]), self._most()
        # Epochs that were run with other numbers of workers lie behind: those counts stand still.
        others = int(most.sum() - most[workers])
        self._cells[cell] += 1
        done = own + others
        return int(self._cells[_EPOCH]) + done, int(self._cells[_STEP]) if done == 0 else 0

    def begun(self) -> int:
        """Return how many epochs have begun since the clock was set."""
        return int(self._most().sum())

    def next(self) -> tuple[int, int]:
        """Return the epoch that will begin next, and its first step."""
        begun = self.begun()
        return int(self._cells[_EPOCH]) + begun, 0 if begun else int(self._cells[_STEP])

    def current(self) -> tuple[int, int]:
        """Return the epoch that was begun last, and the step that it began with."""
        begun = self.begun()
        epoch, step = int(self._cells[_EPOCH]), int(self._cells[_STEP])
        return (epoch + begun - 1, step if begun == 1 else 0) if begun else (epoch, step)

    def _most(self) -> Int64:
        """Return, for each number of workers, how many epochs were begun with it."""
        most: Int64 = np.maximum.reduceat(self._cells, _ROWS)
        return most


def _row(workers: int) -> int:
    """Return the first cell for a number of workers."""
    return _COUNTS + (workers * (workers - 1) // 2 + 1 if workers else 0)


_ROWS = np.array([_row(workers) for workers in range(MAX_WORKERS + 1)])


def private_cells() -> Int64:
    """Return cells for a clock that only one process uses."""
    return np.zeros(CELLS, np.int64)
