"""Which epoch the workers of torch's own loader read, by shared memory: nobody can tell them anything.

Workers, persistent or not, start and exit without the rank's main process knowing, and one that is stopped
early may never have started its epoch. So each worker has its own cell in shared memory. It writes there
which epoch it started and the ticket of its loop: the first worker of a loop starts the next epoch, the
others find it by their ticket, also if they start late. Loops that `Run` can tell where they begin need none
of this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Position
from streamplug.types import Int64

MAX_WORKERS = 256

_SETS, _EPOCH, _DONE, _ROWS = range(4)

CELLS = _ROWS + 1 + MAX_WORKERS  # number of int64 cells

# A cell packs the number of the position that was set, the number of loops started since, the number of the
# first process, the number of workers and the ticket into one integer, so that no process reads half of an
# update, and one that comes late, after a position was set, counts for nobody.
_TICKET_BITS, _WORKER_BITS, _PROCESS_BITS, _BEGUN_BITS = 10, 8, 14, 22
_PROCESS = _TICKET_BITS + _WORKER_BITS
_BEGUN = _PROCESS + _PROCESS_BITS
_SET = _BEGUN + _BEGUN_BITS
_SET_NUMBERS = 1 << 63 - _SET
PROCESSES = 1 << _PROCESS_BITS  # of which the number is known; then it begins at 0 again
MAX_EPOCHS = (1 << _BEGUN_BITS) - 1  # that can be started before the next `set`
TICKETS = 1 << _TICKET_BITS  # exclusive upper bound of tickets


@dataclass(frozen=True, slots=True)
class WorkerLoop:
    """The loop of torch's loader that a worker belongs to.

    Attributes:
        ticket: Number in [1, TICKETS) that all workers of the loop share, and that the next loop is unlikely
            to share; 0 in a process that is no worker.
        worker: Number of this worker in the loop.
        workers: Number of workers of the loop.
        process: Number of the loop's first worker among all processes that this rank started; tells loops
            with equal tickets apart.
    """

    ticket: int = 0
    worker: int = 0
    workers: int = 1
    process: int = 0


class SharedEpoch:
    """Position of the next loop over a data set, in memory that the processes of a rank share.

    Its processes are the rank's own, those that it forks, and workers. A pickled copy has memory of its own,
    unless torch sends it to a worker.
    """

    def __init__(self, cells: Int64 | None = None, sets: int | None = None) -> None:
        """Use `cells`: int64, shape ``[CELLS]``, zeros at first; None for cells of this process alone.

        `sets` is the value of `sets` when this process was started; None for the current one.
        """
        self._cells = np.zeros(CELLS, np.int64) if cells is None else cells
        self._numbers = self._cells.data  # single cells are read faster from it
        self._sets = self.sets if sets is None else sets
        self._latest = 0, 0  # process, and number of the loop that it started or joined last
        self._seen = self.begun()

    @property
    def sets(self) -> int:
        """Number of calls of `set`."""
        return int(self._numbers[_SETS])

    def set(self, position: Position) -> None:
        """Let the next loop begin at a position; workers that were started before raise an error."""
        sets = self.sets + 1
        self._cells[_EPOCH:_ROWS] = position.epoch, position.done
        self._cells[_ROWS:] = 0
        self._cells[_SETS] = self._sets = sets  # last: it is what the others look at
        self._latest, self._seen = (0, 0), 0

    def tell(self, position: Position) -> None:
        """Let the next loop begin at a position, unless it does so anyway."""
        if self.next() != position:
            self.set(position)

    def check(self) -> None:
        """Raise `ConfigError` if the position was set after this process was started."""
        if self._sets != self.sets:
            raise ConfigError(
                "a state, other proportions or another position were set on the data set, which workers "
                "that torch's DataLoader had started do not see: create a new DataLoader, or use "
                "StreamingDataLoader"
            )

    def begin(self, loop: WorkerLoop = WorkerLoop()) -> tuple[Position, int]:
        """Start an epoch, or join it if another worker of the loop did.

        Returns:
            Where it begins, and the number of loops that were started up to it since the position was set.
        """
        if loop.worker >= MAX_WORKERS:
            raise ConfigError(
                f"worker {loop.worker} of a rank; at most {MAX_WORKERS} are supported"
            )
        if loop.ticket:
            self.check()
        sets = self._sets if loop.ticket else self.sets
        values = self._values(sets)
        process, own = self._latest
        own = own if process == os.getpid() else 0
        begun = _find(loop, values, own) or _latest(values) + 1
        if begun > MAX_EPOCHS:
            raise ConfigError(
                f"more than {MAX_EPOCHS} epochs were started since the data set was made or its state was "
                "loaded; call load_state_dict(state_dict()), which starts the count anew"
            )
        # Loops side by side have processes of different numbers.
        row = _ROWS + (1 + (loop.process + loop.worker) % MAX_WORKERS if loop.ticket else 0)
        loop_id = (loop.process % PROCESSES << _WORKER_BITS) + loop.workers - 1
        value = (begun << _BEGUN) + (loop_id << _TICKET_BITS) + loop.ticket
        self._cells[row] = (sets % _SET_NUMBERS << _SET) + value
        self._latest, self._seen = (os.getpid(), begun), begun
        position = self._place(begun)
        if loop.ticket:
            self.check()  # else half of the position may be of one that was set meanwhile
        return position, begun

    def _values(self, sets: int) -> Int64:
        """Return the cells of processes without the number of what was set; 0 for those of other numbers."""
        values = self._cells[_ROWS:]
        is_current = values >> _SET == sets % _SET_NUMBERS
        return np.where(is_current, values & ((1 << _SET) - 1), 0)

    @property
    def is_ahead(self) -> bool:
        """Whether others have started loops since this process did, or set the position."""
        return self.begun() != self._seen

    def begun(self) -> int:
        """Return the number of loops started since the last `set`."""
        return _latest(self._values(self.sets))

    def next(self) -> Position:
        """Return where the next loop begins."""
        return self._place(self.begun() + 1)

    def current(self) -> Position:
        """Return where the loop began that was started last; without one, where the next one does."""
        return self._place(max(self.begun(), 1))

    def _place(self, begun: int) -> Position:
        epoch, done = int(self._cells[_EPOCH]), int(self._cells[_DONE])
        return Position(epoch + begun - 1, done if begun == 1 else 0)


def _latest(values: Int64) -> int:
    return int(values.max()) >> _BEGUN


def _find(loop: WorkerLoop, values: Int64, own: int) -> int:
    """Return the number of a loop if another worker of it has started it; else 0.

    `own` is the number of the loop that this worker was in before, if it is persistent.
    """
    if not loop.ticket:
        return 0
    others = values[(values >> _BEGUN > own) & (values & (TICKETS - 1) == loop.ticket)]
    workers = (others >> _TICKET_BITS) % MAX_WORKERS + 1
    ahead = (loop.process - (others >> _PROCESS) + PROCESSES // 2) % PROCESSES - PROCESSES // 2
    # Within a loop the process numbers are equal, unless other processes are started meanwhile; those
    # of the next loop are larger by its number of workers.
    same_loop = others[(-loop.workers < ahead) & (ahead < workers)]
    return _latest(same_loop) if same_loop.size else 0
