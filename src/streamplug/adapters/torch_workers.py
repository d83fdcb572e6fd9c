"""Worker processes of our loader: the tasks that they are sent, and their messages of several batches.

A task says which loop to read for and how many batches to send; a worker keeps nothing that a state needs. If
the world or the proportions change, or another loop begins, tasks have a new version, and the worker begins
anew where they say. Each worker reads every n-th step, so it goes on from task to task with what it has read
ahead.

A message between processes costs about 0.1 ms of processor time, whatever its size. In
``tests/benchmarks/bench_read.py`` the loader of small samples with two workers reads 35 % fewer samples per
second of processor time with one batch in each.
"""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from multiprocessing import util
from multiprocessing.reduction import ForkingPickler
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, TypeVar

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, get_worker_info

from streamplug.adapters.torch_transfers import share_memory
from streamplug.plan import Position
from streamplug.plugin_kit import Cancelled, consumed_elsewhere
from streamplug.run import Part, RunSnapshot, Session
from streamplug.transfer import HANDOVER, LoopClock, WorkTime

T = TypeVar("T")

MAX_BATCHES_PER_MESSAGE = 8
_MAX_MESSAGE_BYTES = 1 << 16
_MAX_MESSAGE_SECONDS = 0.005
"""Time after which a message is sent as soon as its next batch is ready."""

_MAX_QUEUED_BATCHES = 3 * MAX_BATCHES_PER_MESSAGE
"""Batches of a worker that may wait for those of others, before messages are of one batch."""


class Task(NamedTuple):
    """What a worker is asked for: further batches of what it was told.

    Attributes:
        version: Number of what was told.
        assignment: Pickled `Assignment`.
        most: Largest number of batches to send.
    """

    version: int
    assignment: bytes
    most: int


class Assignment(NamedTuple):
    """What workers read: the rest of an epoch from a position on, for the loop of this number."""

    snapshot: RunSnapshot
    start: Position
    number: int


class Message(NamedTuple):
    """Answer of a worker; `end` is True after its last batch, its wrapped error, or else False.

    `work` is the time that its batches took.
    """

    version: int
    worker: int
    batches: list[Any]
    end: Any
    work: WorkTime = WorkTime()

    def __reduce__(self) -> tuple[Any, ...]:
        # In parts: torch would wait forever for a message that its queue cannot pickle.
        try:
            return _load_message, (bytes(ForkingPickler.dumps(tuple(self))),)
        except Exception:  # noqa: BLE001 - objects of users can raise anything
            end = self.end
            if isinstance(end, ExceptionWrapper) and end.exc_type is not RuntimeError:
                end.exc_type = RuntimeError  # its own may be of a function; the text names it
                return self.__reduce__()
            return Message, (self.version, self.worker, [], _wrap_error(self.worker))


def _load_message(data: bytes) -> Message:
    return Message(*pickle.loads(data))  # noqa: S301 - of a process that this one started


def _wrap_error(worker: int) -> Any:
    """Wrap the exception that is being handled in a worker."""
    return ExceptionWrapper(where=f"in DataLoader worker process {worker}")  # type: ignore[no-untyped-call]  # it has no types


class InProcessError:
    """An error of a loader without workers, in place of torch's `ExceptionWrapper`: it stays as it is."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def reraise(self) -> NoReturn:
        """Raise the error."""
        raise self._error


class WorkerReader(Protocol[T]):
    """What reads in a worker."""

    @property
    def dataset(self) -> Any:
        """What `get_worker_info` names as the data set."""

    @property
    def session(self) -> Session:
        """The session that is told where to read."""

    def read(self, part: Part) -> Generator[T, None, None]:
        """Yield what messages are made of."""

    def nbytes(self, batch: T) -> int:
        """Return the approximate bytes of a batch in a message."""


class TaskReader(Dataset[Any]):
    """Answers tasks in a worker; the index of a batch is a `Task`."""

    def __init__(self, reader: WorkerReader[Any], newest: torch.Tensor) -> None:
        """Answer by what a reader yields; `newest` is the latest version, shape ``[1]``, in shared memory."""
        self._reader, self._newest = reader, newest
        self._version = self._number = 0
        self._batches: Generator[Any, None, None] | None = None
        self._clock = LoopClock()

    @property
    def dataset(self) -> Any:
        """What `get_worker_info` names as the data set."""
        return self._reader.dataset

    def __getitem__(self, task: Task) -> Message:
        worker = get_worker_info()
        number = 0 if worker is None else worker.id
        if not self._is_newest(task.version):
            return Message(task.version, number, [], True)
        batches: list[Any] = []
        end: Any = False
        try:
            with nullcontext() if worker is None else self._ended_with(task):
                if task.version != self._version:
                    self._begin(task)
                self._clock.enter(HANDOVER)
                end = self._append(batches, task)
                self._clock.leave()
        except Cancelled:  # it waited for a storage, and nobody waits for the batches
            self._close()
            return Message(task.version, number, [], True)
        except Exception as error:  # noqa: BLE001 - raised by the loop, in the turn of its batch
            end = InProcessError(error) if worker is None else _wrap_error(number)
            self._close()
        return Message(task.version, number, batches, end, self._clock.take())

    def _ended_with(self, task: Task) -> AbstractContextManager[None]:
        """End what waits for a storage in this worker as soon as nobody waits for the task."""
        return consumed_elsewhere(lambda: not self._is_newest(task.version))

    def _is_newest(self, version: int) -> bool:
        return int(self._newest[0]) == version

    def _begin(self, task: Task) -> None:
        if not self._version and get_worker_info() is not None:
            # Torch keeps the data set until the process has ended.
            util.Finalize(None, self._close, exitpriority=1)
        assignment: Assignment = pickle.loads(task.assignment)  # noqa: S301 - of the process that started this one
        if self._batches is not None and self._number == assignment.number:
            self._reader.session.leave(self._batches)
        self._close()
        self._version, self._number = task.version, assignment.number
        if get_worker_info() is not None:
            self._reader.session.adopt(assignment.snapshot)
        part = Part(assignment.start, assignment.number)
        self._batches, self._clock = self._reader.read(part), part.clock

    def _close(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:
            batches.close()

    def _append(self, batches: list[Any], task: Task) -> bool:
        """Append the next batches of a message; return whether they were the last ones."""
        free_bytes, started = _MAX_MESSAGE_BYTES, perf_counter()
        source = self._batches
        if source is None:
            return True
        while len(batches) < task.most:
            try:
                batch = next(source)
            except StopIteration:
                return True
            batches.append(batch)
            free_bytes -= self._reader.nbytes(batch)
            if free_bytes <= 0 or perf_counter() - started > _MAX_MESSAGE_SECONDS:
                return False
            if not self._is_newest(task.version):
                return False  # nobody waits for the rest
        return False


class Tasks:
    """The tasks of the workers of a loader, as the sampler of torch's loader; they do not end before `end`.

    Attributes:
        version: Number of what workers were told last.
        max_batches: Largest number of batches of a message.
    """

    def __init__(self, workers: int) -> None:
        self.version, self.max_batches = 0, MAX_BATCHES_PER_MESSAGE
        self.newest = share_memory(torch.zeros(1, dtype=torch.int64))
        self._workers, self._assignment = workers, b""
        self._num_tasks, self._is_over = 0, True

    def begin(self, assignment: Assignment) -> int:
        """Ask for the batches of what is told here from now on; return its version."""
        self._assignment, self._num_tasks, self._is_over = pickle.dumps(assignment), 0, False
        return self._renew()

    def _renew(self) -> int:
        self.version += 1
        self.newest[0] = self.version
        return self.version

    def end(self) -> None:
        """Ask for nothing more."""
        self._is_over = True
        self._renew()

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        if self._is_over:
            raise StopIteration
        # The first messages are small, to shorten the start. Torch asks one worker after the other.
        most = min(1 << min(self._num_tasks // self._workers, 16), self.max_batches)
        self._num_tasks += 1
        return Task(self.version, self._assignment, most)


class WorkerPool:
    """Worker processes that read for one loop at a time, one after the other if they are persistent."""

    def __init__(self, reader: WorkerReader[Any], **settings: Any) -> None:
        """Make a pool; `settings` are arguments of torch's loader."""
        settings["worker_init_fn"] = partial(_start_worker, settings.get("worker_init_fn"))
        self.num_workers: int = settings.get("num_workers") or 0
        self._tasks = Tasks(max(self.num_workers, 1))
        answers = TaskReader(reader, self._tasks.newest)
        self._loader: DataLoader[Any] = DataLoader(
            answers, batch_size=None, sampler=self._tasks, collate_fn=identity, **settings
        )
        self._messages: Generator[Message, None, None] | None = None
        self._is_busy = False

    @contextmanager
    def lease(self) -> Iterator[None]:
        """Let a loop have the pool for itself; its workers end with it, or wait if they are persistent.

        After an error they do not wait for another loop.
        """
        self._messages, self._is_busy = None, True
        try:
            yield
            self._tasks.end()
            if self._messages is not None:
                for _ in self._messages:
                    pass  # until they have ended, or wait
        except GeneratorExit:
            self._tasks.end()
            raise
        except BaseException:
            vars(self._loader)["_iterator"] = None
            raise
        finally:
            self._is_busy = False

    @property
    def iterator(self) -> Any:
        """The iterator of torch that has the worker processes, if they are persistent; else None."""
        return vars(self._loader)["_iterator"]

    @property
    def is_free(self) -> bool:
        """Whether no loop has the pool, as one of a copy of the loader may, and its workers are alive."""
        workers = getattr(self.iterator, "_workers", ())
        return not self._is_busy and all(worker.is_alive() for worker in workers)

    def read(self, assignment: Assignment, clock: LoopClock) -> Generator[Any, None, None]:
        """Tell workers what to read; return its batches, to be closed before they are told something else.

        `clock` counts the waits for workers.
        """
        version = self._tasks.begin(assignment)
        if self._messages is None:
            # May fork: before any thread is started.
            self._messages = release_after_error(_start_iterator(self._loader), self._tasks)
        return self._batches(self._messages, version, clock)

    def _batches(
        self,
        messages: Generator[Message, None, None],
        version: int,
        clock: LoopClock | None = None,
    ) -> Generator[Any, None, None]:
        current = (message for message in messages if message.version == version)
        wrapped = None
        try:
            yield from round_robin(current, max(self.num_workers, 1), self._tasks, clock)
        except WorkerError as error:
            wrapped = error.wrapped
        if wrapped is not None:
            try:
                wrapped.reraise()
            except Exception as error:  # noqa: BLE001 - any error of a worker
                original = error
            try:
                # Raised where the messages come from, so that these let go of the workers.
                messages.throw(original)
            finally:
                del wrapped, original  # which refers to this frame, and that to persistent workers


class _OpenQueues:
    """Keeps the queues of an iterator, which holds the only reference to this, out of garbage collection."""

    _queues: ClassVar[dict[int, Any]] = {}

    def __init__(self, iterator: Any) -> None:
        self._queues[id(self)] = getattr(iterator, "_index_queues", None)

    def __del__(self) -> None:
        self._queues.pop(id(self), None)


def _start_iterator(loader: DataLoader[Any]) -> Any:
    """Return torch's iterator over workers, which end at once even if it is part of a reference cycle.

    When a cycle is collected, callbacks of weak references come first: they would end the queues of the
    iterator before it tells the workers to end, and torch would wait 5 s for each of them.
    """
    iterator: Any = iter(loader)
    iterator.streamplug_queues = _OpenQueues(iterator)
    return iterator


def _start_worker(start: Callable[[int], object] | None, worker: int) -> None:
    """Call a `worker_init_fn` in a worker, where `get_worker_info` has the data set of the loader."""
    info: Any = get_worker_info()
    object.__setattr__(info, "dataset", info.dataset.dataset)  # torch forbids to set it
    if start is not None:
        start(worker)


class WorkerError(Exception):
    """It is the turn of a batch whose worker failed; `wrapped` is the end of its last message."""

    def __init__(self, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.wrapped = wrapped


def round_robin(
    messages: Iterable[Message], workers: int, tasks: Tasks, clock: LoopClock | None = None
) -> Iterator[Any]:
    """Yield one batch of each worker in turn, as long as the worker has some; leave further messages.

    Args:
        messages: The messages, of which each worker sends the same number in the same time.
        workers: Number of workers.
        tasks: Its `max_batches` is set: batches of a fast worker would pile up if its messages had more of
            them than those of a slow one.
        clock: Counts the waits for messages.

    Raises:
        WorkerError: When it is the turn of a worker that failed.
    """
    remaining, clock = iter(messages), clock or LoopClock()
    queues: list[deque[Any]] = [deque() for _ in range(workers)]
    ends: dict[int, Any] = {}
    turn, tasks.max_batches = 0, MAX_BATCHES_PER_MESSAGE
    while len(ends) < workers or any(queues) or any(end is not True for end in ends.values()):
        while not queues[turn] and turn not in ends:
            clock.enter(HANDOVER)
            message = next(remaining)
            clock.leave_to(message.work)
            queues[message.worker].extend(message.batches)
            if message.end:
                ends.setdefault(message.worker, message.end)
            is_ahead = max(map(len, queues)) > _MAX_QUEUED_BATCHES
            tasks.max_batches = 1 if is_ahead else MAX_BATCHES_PER_MESSAGE
        if queues[turn]:
            yield queues[turn].popleft()
        elif ends[turn] is not True:
            raise WorkerError(ends[turn])
        turn = (turn + 1) % workers


def release_after_error(batches: Iterator[T], tasks: Tasks) -> Generator[T, None, None]:
    """Yield from torch's iterator over workers; after an error, end the tasks, and hold no reference to it.

    The iterator then waits for the workers, which have to see before that nobody waits for a batch.

    An error of a worker refers to itself and to that iterator through the frames of torch that raised it: the
    workers would go on until such a cycle is collected. So does a KeyboardInterrupt, which an interactive
    session keeps.
    """
    try:
        yield from batches
    except BaseException as error:
        tasks.end()
        del batches
        traceback.clear_frames(error.__traceback__)
        raise


def identity(batch: Any) -> Any:
    """Return the batch unchanged, as the `collate_fn` of a loader of whole batches."""
    return batch
