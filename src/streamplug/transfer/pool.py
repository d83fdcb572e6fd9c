"""Threads for requests: a FIFO pool with a bounded number of running jobs, and threads that are reused."""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from threading import Condition, Event, RLock, Thread
from typing import Any, Generic, TypeVar

from streamplug.errors import StreamplugError
from streamplug.plugin_kit import Cancelled, Scope, check, current, inside

T = TypeVar("T")
V = TypeVar("V")

MAX_THREADS = 64
STOP_SECONDS = 5.0  # only code that ignores cancellation takes longer
_CANCEL_POLL_SECONDS = 0.1
IDLE_SECONDS = 0.5
"""Time without work after which a thread ends.

In ``tests/benchmarks/bench_remote.py`` reading by ranges takes 20 % more processor time without reuse.
"""

_JOIN_SECONDS = 5.0
_MAX_JOBS_PER_THREAD = 4  # of `map_threads`, with results that nobody has taken


class Job(Generic[T]):
    """A function that runs on another thread.

    Attributes:
        weight: Bytes that it takes while it runs.
        result: What the function returned.
        error: The exception that it raised, or None.
    """

    result: T

    def __init__(self, work: Callable[[], T], weight: int = 0) -> None:
        self.weight = weight
        self.error: BaseException | None = None
        self._work = work
        self._done = Event()
        self._pid = os.getpid()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, or for a number of seconds; return whether it has ended.

        Raises:
            StreamplugError: If it has not ended, and this process is a fork of the one that runs it.
        """
        if self.done:
            return True
        check_process(self._pid)
        return self._done.wait(seconds)

    def take(self) -> T:
        """Return its result when it has ended, or raise its exception, which it lets go of.

        The frames of the traceback refer to the job. In a reference cycle, what they had open would stay open
        until the next garbage collection.
        """
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            return self.result
        finally:
            del error

    def drop(self, error: BaseException) -> None:
        """End it without running."""
        self.error = error
        self._done.set()

    def run(self, before_end: Callable[[], object] = lambda: None) -> None:
        """Run it, and store its result or its exception; then call `before_end`, and mark it as ended."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised by the consumer
            self.error = error
        before_end()
        self._done.set()
        # The traceback of the error leads to this frame, which must not lead back to the job.
        del self


class _PoolScope(Scope):
    def __init__(self, add_running: Callable[[int], None]) -> None:
        super().__init__()
        self._add_running = add_running

    @contextmanager
    def idle(self) -> Iterator[None]:
        self._add_running(-1)
        try:
            yield
        finally:
            self._add_running(+1)


class ThreadPool:
    """FIFO pool of daemon threads, which are started on demand and wait for jobs until it is stopped.

    Attributes:
        unfinished: Number of jobs that have not ended.
        weight: Bytes of these jobs.
    """

    def __init__(self, max_jobs: int, max_bytes: int | None = None) -> None:
        """Run up to `max_jobs` jobs at once, not counting those that wait for another process.

        Running jobs may weigh up to `max_bytes` together; a single job may exceed that. None is unlimited.
        """
        self._max_jobs, self._max_bytes = max_jobs, max_bytes
        self._running = self._running_bytes = self._idle = 0
        self._queue: deque[Job[Any]] = deque()
        self._threads: list[Thread] = []
        # Reentrant: garbage collection may end a loop, which stops its pool, while this thread holds it.
        self._lock = RLock()  # not that of the condition, which an interrupt could leave locked
        self._changed = Condition(self._lock)
        self._scope = _PoolScope(self._add_running)
        self._pid = os.getpid()
        self.unfinished = self.weight = 0
        self._cancel_stop_at_exit = _call_at_exit(self.stop)

    def submit(self, work: Callable[[], T], weight: int = 0) -> Job[T]:
        """Queue a job that weighs `weight` bytes.

        Raises:
            StreamplugError: If this process is a fork of the one that made the pool.
        """
        check_process(self._pid)
        job = Job(work, weight)
        with self._lock:
            if self._scope.stopped:
                job.drop(Cancelled())
                return job
            self.unfinished += 1
            self.weight += weight
            self._queue.append(job)
            self._wake()
        return job

    def stop(self) -> None:
        """Drop queued jobs, cancel running ones and join the threads."""
        if os.getpid() != self._pid:
            return  # after a fork, the threads are the parent's
        self._cancel_stop_at_exit()
        with self._lock:
            while self._queue:
                job = self._queue.popleft()
                self._forget(job)
                job.drop(Cancelled())
            self._scope.stop()
            self._changed.notify_all()
            threads = [thread for thread in self._threads if thread.is_alive()]
        if current() is self._scope:
            return  # garbage collection may call this on one of these threads
        end = time.monotonic() + STOP_SECONDS
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))

    def _wake(self) -> None:
        """Let another thread take the next job, if it may run."""
        if not self._may_take():
            return
        if self._idle:
            self._changed.notify()
        elif len(self._threads) < MAX_THREADS:
            thread = Thread(target=self._work, name="streamplug-prefetch", daemon=True)
            self._threads.append(thread)
            try:
                thread.start()
            except RuntimeError:  # out of threads or memory
                self._threads.remove(thread)
                if not self._threads:
                    raise

    def _may_take(self) -> bool:
        if self._scope.stopped or not self._queue or self._running >= self._max_jobs:
            return False
        total_bytes = self._running_bytes + self._queue[0].weight
        return self._max_bytes is None or not self._running or total_bytes <= self._max_bytes

    def _add_running(self, number: int) -> None:
        with self._lock:
            self._running += number
            self._wake()

    def _work(self) -> None:
        with inside(self._scope):
            while (job := self._take()) is not None:
                job.run()
                with self._lock:
                    self._running -= 1
                    self._running_bytes -= job.weight
                    self._forget(job)
                del job  # what it refers to can be freed while this thread waits

    def _take(self) -> Job[Any] | None:
        """Wait for a job that may run, and remove it from the queue; None if the pool is stopped."""
        with self._lock:
            while not self._may_take():
                if self._scope.stopped:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            job = self._queue.popleft()
            self._running += 1
            self._running_bytes += job.weight
            self._wake()
            return job

    def _forget(self, job: Job[Any]) -> None:
        self.unfinished -= 1
        self.weight -= job.weight


def check_process(pid: int) -> None:
    """Raise an error in a fork of process `pid`: it has none of its parent's threads, and no job would end.

    Starting threads again is not enough: the fork may have inherited locks that the parent's threads held.
    """
    if os.getpid() != pid:
        raise StreamplugError(
            f"the threads that read and write here are those of process {pid}, of which process "
            f"{os.getpid()} is a fork: start a new iteration, or open a new writer, in this process"
        )


def map_threads(
    function: Callable[[V], T], items: Sequence[V], max_threads: int
) -> Generator[T, None, None]:
    """Yield the results of a function in the order of its items, computed on up to `max_threads` threads.

    The error of the first item in the list that fails is raised. A single item needs no thread. If the
    consumer of this thread stops, no further item is begun, and `Cancelled` is raised. Few results are held
    until they are taken.
    """
    if len(items) <= 1:
        for item in items:  # not map(), which a StopIteration of the function would end in silence
            yield function(item)
        return
    pool, remaining = ThreadPool(max_threads), iter(items)
    jobs: deque[Job[T]] = deque()
    try:
        while True:
            for item in islice(remaining, _MAX_JOBS_PER_THREAD * max_threads - len(jobs)):
                jobs.append(pool.submit(partial(function, item)))
            if not jobs:
                return
            job = jobs.popleft()  # so that its result can be freed
            while not job.wait(_CANCEL_POLL_SECONDS):
                check()
            check()
            yield job.take()
    finally:
        pool.stop()


def _call_at_exit(stop: Callable[[], None]) -> Callable[[], None]:
    """Register `stop` for the end of this process; return a function that unregisters it."""
    from multiprocessing.util import Finalize

    # Before clients close their connections, as handlers run in reverse order: jobs would see errors.
    atexit.register(stop)
    # Children forked by multiprocessing exit without atexit handlers.
    finalizer = Finalize(None, stop, exitpriority=100)

    def cancel() -> None:
        atexit.unregister(stop)
        finalizer.cancel()

    return cancel


class _ReusedThread(Thread):
    """A daemon thread, so that a request that hangs does not keep the process from exiting."""

    def __init__(self) -> None:
        super().__init__(name="streamplug-request", daemon=True)
        self.queue: SimpleQueue[Job[Any] | None] = SimpleQueue()

    def run(self) -> None:
        idle = _idle  # the list of this process
        while (job := self._next_job()) is not None:
            job.run(before_end=lambda: idle.append(self))
            del job  # what it refers to can be freed while this thread waits

    def _next_job(self) -> Job[Any] | None:
        try:
            return self.queue.get(timeout=IDLE_SECONDS)
        except Empty:
            with suppress(ValueError):
                _idle.remove(self)
                return None
            return self.queue.get()  # another thread has just removed it


_idle: list[_ReusedThread] = []


def run_on_thread(job: Job[Any]) -> None:
    """Start a job on an idle or new thread, which can be used again when the job has ended.

    Raises:
        RuntimeError: If no thread can be started.
    """
    try:
        worker = _idle.pop()  # LIFO: it was awake most recently
    except IndexError:
        worker = _ReusedThread()
        worker.start()
    worker.queue.put(job)


def end_idle_threads() -> None:
    """End and join all idle threads."""
    workers = []
    with suppress(IndexError):
        while True:
            workers.append(_idle.pop())
    for worker in workers:
        worker.queue.put(None)
    for worker in workers:
        worker.join(_JOIN_SECONDS)


# Forking with several threads warns, and a child has none of its parent's threads.
os.register_at_fork(before=end_idle_threads, after_in_child=_idle.clear)
