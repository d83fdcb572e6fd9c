"""Epoch counter in shared memory for all loader workers of a rank.

Loader workers, persistent or not, start and exit without the rank's main process knowing, and one that
is stopped early may never have started its epoch. So each worker has its own cell in shared memory. It
writes there which epoch it started and the ticket of its loop over the data set: the first worker of a
loop starts the next epoch, the others find it by their ticket. A cell has a single writer, except that
the main process resets all cells when it loads a state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock

import numpy as np

from streamplug.errors import ConfigError
from streamplug.session.world_change import CHANGE_CELLS, WorldChange
from streamplug.types import Int64

MAX_WORKERS = 256

_EPOCH, _STEP, _VERSION, _SETS, _ENDED, _CHANGE = range(6)
_WORKERS = _CHANGE + CHANGE_CELLS

CELLS = _WORKERS + 1 + MAX_WORKERS  # number of int64 cells of a counter

# A worker's cell packs the number of epochs started, the number of the first process, the number of workers
# and the ticket into one integer, so that no process reads half of an update.
_TICKET_BITS, _WORKER_BITS, _PROCESS_BITS = 14, 8, 18
_PROCESS = _TICKET_BITS + _WORKER_BITS
_BEGUN = _PROCESS + _PROCESS_BITS
_PROCESSES = 1 << _PROCESS_BITS
MAX_EPOCHS = (1 << 63 - _BEGUN) - 1  # that can be started before the next `set`
TICKETS = 1 << _TICKET_BITS  # exclusive upper bound of tickets


@dataclass(frozen=True, slots=True)
class WorkerLoop:
    """The loader loop that a worker belongs to."""

    # Number in [1, TICKETS) that all workers of the loop share, and that the next loop is unlikely to
    # share; 0 for the rank's main process.
    ticket: int = 0
    worker: int = 0  # number of this worker in the loop
    workers: int = 1  # number of workers of the loop
    # Number of the loop's first worker among all processes that this rank started; tells loops with equal
    # tickets apart.
    process: int = 0
    # Number of epochs started up to that of the loop, if its loader numbered them; else 0.
    begun: int = 0


class EpochCounter:
    """Epoch number and first step of the next epoch, shared by all workers of a rank."""

    def __init__(self, cells: Int64, sets: int | None = None) -> None:
        """Count in `cells`: int64, shape ``[CELLS]``, zeros at first, shared by all workers.

        `sets` is the value of `EpochCounter.sets` when this process was started; None for the current one.
        """
        self._cells = cells
        self._numbers = cells.data  # single cells are read faster from it
        self._sets = self.sets if sets is None else sets
        self._began_in = 0  # process id

    def __getstate__(self) -> tuple[int, int, int]:
        # A copy has its own counter, which continues with the next epoch.
        return *self.next(), self.version

    def __setstate__(self, state: tuple[int, int, int]) -> None:
        self.__init__(private_cells())  # type: ignore[misc]  # a new object is made in place
        self.set(*state)

    @property
    def version(self) -> int:
        """The `version` passed to the last `set`; 0 at first."""
        return int(self._numbers[_VERSION])

    @property
    def sets(self) -> int:
        """Number of calls of `set`."""
        return int(self._numbers[_SETS])

    @property
    def events(self) -> int:
        """Number of calls of `set`, and of changes of the world."""
        return int(self._numbers[_SETS] + self._numbers[_CHANGE])

    @property
    def changes(self) -> int:
        """Number of changes of the world; see `change`."""
        return int(self._numbers[_CHANGE])

    @property
    def change(self) -> WorldChange | None:
        """The latest change of the world; None if there is none, or it is just being made."""
        return WorldChange.from_cells(self._cells[_CHANGE:_WORKERS].tolist())

    def change_world(self, change: WorldChange) -> None:
        """Let the processes of this rank know a change of the world."""
        number, *others = change.to_cells()
        self._cells[_CHANGE + 1 : _WORKERS] = others
        self._cells[_CHANGE] = number  # last: it is what the others look at

    def end(self, epoch: int) -> None:
        """Note that all batches of an epoch were used, so that workers may end their loops."""
        self._cells[_ENDED] = epoch + 1

    def is_ended(self, epoch: int) -> bool:
        """Return whether the last call of `end` was for this epoch."""
        return bool(self._numbers[_ENDED] == epoch + 1)

    def set(self, epoch: int, step: int, version: int = 0) -> None:
        """Set the next epoch, its first step, and a version that tells outdated copies of a run apart."""
        sets, change = self.sets + 1, self.change
        self._cells[:_CHANGE] = epoch, step, version, sets, 0
        self._cells[_WORKERS:] = 0
        if change is not None:  # the world stays, but no loop goes on in it
            self.change_world(replace(change, epoch=-1))
        self._sets = sets

    def begin(self, loop: WorkerLoop = WorkerLoop()) -> tuple[int, int]:
        """Start an epoch, or join it if the loader or another worker did; return it and its first step."""
        if loop.worker >= MAX_WORKERS:
            raise ConfigError(
                f"worker {loop.worker} of a rank; at most {MAX_WORKERS} are supported"
            )
        if loop.ticket and self._began_in != os.getpid() and self._sets != self.sets:
            raise ConfigError("a state was loaded while the workers of this loop were starting")
        with _beginning:  # as another thread may start a loop over the same data set
            return self._place(self._begin(loop))

    def _begin(self, loop: WorkerLoop) -> int:
        """Start or join an epoch; return the number of epochs started up to it."""
        cells = self._cells[_WORKERS:]
        own_cell = 1 + loop.worker if loop.ticket else 0
        values = cells.copy()
        latest = int(values.max()) >> _BEGUN
        # A worker that was in the latest epoch starts another one: it is persistent, or a seed was repeated.
        joins = values[own_cell] >> _BEGUN != latest and self._is_begun(loop, values, latest)
        begun = loop.begun or (latest if joins else latest + 1)
        if begun > MAX_EPOCHS:
            raise ConfigError(
                f"more than {MAX_EPOCHS} epochs were started since the data set was made or its state was "
                "loaded; call load_state_dict(state_dict()), which starts the count anew"
            )
        loop_id = (loop.process % _PROCESSES << _WORKER_BITS) + loop.workers - 1
        cells[own_cell] = (begun << _BEGUN) + (loop_id << _TICKET_BITS) + loop.ticket
        self._began_in, self._sets = os.getpid(), self.sets
        return begun

    @contextmanager
    def starting(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Start an epoch, as `begin`; if the block raises before a worker begins, it has not been started.

        Yields the number of epochs started up to it, and what `begin` returns.
        """
        with _beginning:
            before, place = int(self._numbers[_WORKERS]), self.begin()
            own_value, begun = int(self._cells[_WORKERS]), self.begun()
        try:
            yield begun, place
        except BaseException:
            with _beginning:
                # Else another thread has started one after it, or a worker has begun this one.
                if self._cells[_WORKERS] == own_value and self._begun_by_workers() < begun:
                    self._cells[_WORKERS] = before
            raise

    def _is_begun(self, loop: WorkerLoop, values: Int64, latest: int) -> bool:
        """Return whether another worker of this loop has started the latest epoch."""
        others = values[(values >> _BEGUN == latest) & (values & (TICKETS - 1) == loop.ticket)]
        workers = (others >> _TICKET_BITS) % MAX_WORKERS + 1
        ahead = (
            loop.process - (others >> _PROCESS) + _PROCESSES // 2
        ) % _PROCESSES - _PROCESSES // 2
        # Within a loop the process numbers are equal, unless other processes are started meanwhile; those
        # of the next loop are larger by its number of workers.
        is_same_loop = (-loop.workers < ahead) & (ahead < workers)
        return bool(loop.ticket) and bool(is_same_loop.any())

    def begun(self) -> int:
        """Return the number of epochs started since the last `set`."""
        return int(self._cells[_WORKERS:].max()) >> _BEGUN

    def _begun_by_workers(self) -> int:
        return int(self._cells[_WORKERS + 1 :].max()) >> _BEGUN

    def next(self) -> tuple[int, int]:
        """Return the next epoch and its first step."""
        return self._place(self.begun() + 1)

    def current(self) -> tuple[int, int]:
        """Return the epoch started last, or else the next one, and its first step."""
        return self._place(max(self.begun(), 1))

    def _place(self, begun: int) -> tuple[int, int]:
        epoch, step = int(self._cells[_EPOCH]), int(self._cells[_STEP])
        return epoch + begun - 1, step if begun == 1 else 0


def private_cells() -> Int64:
    """Return cells for a counter that is used by one process only."""
    return np.zeros(CELLS, np.int64)


_beginning = RLock()  # reentrant: a signal handler may start a loop while this thread holds it


def _renew_lock_in_child() -> None:
    global _beginning  # noqa: PLW0603 - another thread may have held it at the fork
    _beginning = RLock()


os.register_at_fork(after_in_child=_renew_lock_in_child)
