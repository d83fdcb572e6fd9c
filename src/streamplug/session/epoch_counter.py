"""Counts epochs for all workers of a rank without a word between them.

Loader workers, persistent or not, come and go while the rank's main process knows nothing of it, and
one that is stopped early may never have begun. So each has a cell of its own in memory that all
share, and notes there which epoch it began and the ticket of the loop that it works for: the first
worker of a loop to begin takes the next epoch, the others find it under their ticket. Nobody ever
writes another's cell, except the main process when it loads a state.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

MAX_WORKERS = 256

_EPOCH, _STEP, _VERSION, _SETS, _NOTES = 0, 1, 2, 3, 4

CELLS = _NOTES + 1 + MAX_WORKERS
"""How many int64 a clock needs."""

# A note is one integer, so that nobody reads half of it: epochs begun, number of the first process, number
# of workers, ticket.
_TICKET_BITS, _WORKER_BITS, _PROCESS_BITS = 14, 8, 18
_PROCESS = _TICKET_BITS + _WORKER_BITS
_BEGUN = _PROCESS + _PROCESS_BITS
_PROCESSES = 1 << _PROCESS_BITS
TICKETS = 1 << _TICKET_BITS
"""Tickets are below this."""


@dataclass(frozen=True, slots=True)
class WorkerLoop:
    """What a worker knows of the loop over the data set that it works for.

    Attributes:
        ticket: A number in ``[1, TICKETS)`` that all workers of the loop have in common, and hardly those of
            the next; 0 for the rank's own process.
        worker: Which of them this is.
        workers: How many they are.
        process: The number of the first of them among all processes that this rank ever started; tells
            loops apart where a ticket comes again.
    """

    ticket: int = 0
    worker: int = 0
    workers: int = 1
    process: int = 0


class EpochCounter:
    """Says which epoch comes next, and with which step it begins."""

    def __init__(self, cells: Int64, sets: int | None = None) -> None:
        """Count in `cells`.

        Args:
            cells: int64, shape ``[CELLS]``, zeros at first; shared by all workers.
            sets: How often `set` had been called when this process was asked for; None for now.
        """
        self._cells = cells
        self._sets = self.sets if sets is None else sets
        self._began_in = 0  # which process

    def __getstate__(self) -> tuple[int, int, int]:
        # A copy counts for itself, from the next epoch on.
        return *self.next(), self.version

    def __setstate__(self, state: tuple[int, int, int]) -> None:
        self.__init__(private_cells())  # type: ignore[misc]  # a new object is made in place
        self.set(*state)

    @property
    def version(self) -> int:
        """What `set` was told last; 0 at first."""
        return int(self._cells[_VERSION])

    @property
    def sets(self) -> int:
        """How often `set` was called."""
        return int(self._cells[_SETS])

    def set(self, epoch: int, step: int, version: int = 0) -> None:
        """Let the next epoch to begin be this one, from this step on.

        Args:
            epoch: Which epoch.
            step: Its first step.
            version: Tells copies of a run that were made before from those made since.
        """
        sets = self.sets + 1
        self._cells[:] = 0
        self._cells[:_NOTES] = epoch, step, version, sets
        self._sets = sets

    def begin(self, loop: WorkerLoop = WorkerLoop()) -> tuple[int, int]:
        """Begin an epoch.

        Args:
            loop: What this worker knows of its loop.

        Returns:
            The epoch and its first step.

        Raises:
            ConfigError: If there are too many workers, or the clock was set since this one was started.
        """
        if loop.worker >= MAX_WORKERS:
            raise ConfigError(
                f"worker {loop.worker} of a rank; at most {MAX_WORKERS} are supported"
            )
        if loop.ticket and self._began_in != os.getpid() and self._sets != self.sets:
            raise ConfigError("a state was loaded while the workers of this loop were starting")
        notes = self._cells[_NOTES:]
        mine = 1 + loop.worker if loop.ticket else 0
        seen = notes.copy()
        latest = int(seen.max()) >> _BEGUN
        # Who was in that epoch already begins another: a persistent worker, or a seed drawn twice.
        joins = seen[mine] >> _BEGUN != latest and self._is_begun(loop, seen, latest)
        begun = latest if joins else latest + 1
        what = (loop.process % _PROCESSES << _WORKER_BITS) + loop.workers - 1
        notes[mine] = (begun << _BEGUN) + (what << _TICKET_BITS) + loop.ticket
        self._began_in, self._sets = os.getpid(), self.sets
        return self._place(begun)

    def _is_begun(self, loop: WorkerLoop, seen: Int64, latest: int) -> bool:
        """Say whether another worker of this loop has begun the latest epoch."""
        others = seen[(seen >> _BEGUN == latest) & (seen & (TICKETS - 1) == loop.ticket)]
        workers = (others >> _TICKET_BITS) % MAX_WORKERS + 1
        ahead = (
            loop.process - (others >> _PROCESS) + _PROCESSES // 2
        ) % _PROCESSES - _PROCESSES // 2
        # Within a loop the numbers are the same, but for processes that others start meanwhile; those
        # of the next loop are larger by all of its workers.
        near = (-loop.workers < ahead) & (ahead < workers)
        return bool(loop.ticket) and bool(near.any())

    def begun(self) -> int:
        """Return how many epochs have begun since the clock was set."""
        return int(self._cells[_NOTES:].max()) >> _BEGUN

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
