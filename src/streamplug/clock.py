"""Counts epochs for all workers of a rank without a word between them.

Loader workers, persistent or not, come and go while the rank's main process knows nothing of it, and
one that is stopped early may never have begun. So each has a cell of its own in memory that all
share, and notes there which epoch it began and the ticket of the loop that it works for: the first
worker of a loop to begin takes the next epoch, the others find it under their ticket. Nobody ever
writes another's cell, except the main process when it loads a state.
"""

from __future__ import annotations

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

MAX_WORKERS = 256

_EPOCH, _STEP, _NOTES = 0, 1, 2

CELLS = _NOTES + 1 + MAX_WORKERS
"""How many int64 a clock needs."""

TICKETS = 1 << 32
"""Tickets are below this."""


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

    def begin(self, ticket: int = 0, worker: int = 0) -> tuple[int, int]:
        """Begin an epoch.

        Args:
            ticket: What all workers of one loop over the data set have in common, and hardly those
                of the next; 0 for the rank's own process.
            worker: Which of them this is.

        Returns:
            The epoch and its first step.

        Raises:
            ConfigError: If there are too many workers.
        """
        if worker >= MAX_WORKERS:
            raise ConfigError(f"worker {worker} of a rank; at most {MAX_WORKERS} are supported")
        notes = self._cells[_NOTES:]
        mine = 1 + worker if ticket else 0
        # One integer holds both, so that nobody reads one without the other.
        seen = notes.copy()
        latest = int(seen.max()) // TICKETS
        joined = latest * TICKETS + ticket
        # Who was in that epoch already begins another: a persistent worker, or a seed drawn twice.
        joins = ticket and joined in seen and joined != seen[mine]
        begun = latest if joins else latest + 1
        notes[mine] = begun * TICKETS + ticket
        return self._place(begun)

    def begun(self) -> int:
        """Return how many epochs have begun since the clock was set."""
        return int(self._cells[_NOTES:].max()) // TICKETS

    def next(self) -> tuple[int, int]:
        """Return the epoch that will begin next, and its first step."""
        return self._place(self.begun() + 1)

    def current(self) -> tuple[int, int]:
        """Return the epoch that was begun last, or else the next, and the step it began with."""
        return self._place(max(self.begun(), 1))

    def _place(self, begun: int) -> tuple[int, int]:
        epoch, step = int(self._cells[_EPOCH]), int(self._cells[_STEP])
        return epoch + begun - 1, step if begun == 1 else 0


def private_cells() -> Int64:
    """Return cells for a clock that only one process uses."""
    return np.zeros(CELLS, np.int64)
