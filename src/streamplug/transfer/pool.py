"""FIFO thread pool with a bounded number of running jobs."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from streamplug.plugin_kit.cancellation import Cancelled, Scope, current, inside
from streamplug.transfer.threads import end_idle, on_thread

_MAX_THREADS = 64
_STOP_SECONDS = 5.0  # only code that ignores cancellation takes longer


class Job:
    """A job of a thread pool; `error` is the exception that it raised."""

    def __init__(self, work: Callable[[], object], weight: int) -> None:
        self.work = work
        self.weight = weight
        self.error: BaseException | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._done.is_set()

    def wait(self) -> None:
        """Wait until it has ended."""
        self._done.wait()

    def drop(self, why: BaseException) -> None:
        """End it without running, with an error."""
        self.error = why
        self._done.set()

    def run(self) -> None:
        """Run it and store its exception."""
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - raised by the consumer
            self.error = error
        self._done.set()


class _WorkersScope(Scope):
    def __init__(self, idle: Callable[[int], None]) -> None:
        super().__init__()
        self._idle = idle

    @contextmanager
    def idle(self) -> Iterator[None]:
        self._idle(-1)
        try:
            yield
        finally:
            self._idle(+1)


class ThreadPool:
    """FIFO pool of daemon threads, started on demand; `unfinished` jobs weigh `weight` bytes together."""

    def __init__(self, active: int, most: int | None = None) -> None:
        """Run up to `active` jobs at once, not counting those that wait for another process.

        Running jobs may weigh up to `most` bytes together; a single job may exceed that. None is unlimited.
        """
        self._active, self._most = active, most
        self._running = self._carried = self._threads = 0
        self._queue: deque[Job] = deque()
        self._change = threading.Condition()
        self._scope = _WorkersScope(self._add_running)
        self._pid = os.getpid()
        self.unfinished = self.weight = 0
        self._at_exit = _at_exit(self.stop)

    def submit(self, work: Callable[[], object], weight: int = 0) -> Job:
        """Queue a job that weighs `weight` bytes."""
        job = Job(work, weight)
        with self._change:
            if self._scope.stopped:
                job.drop(Cancelled())
                return job
            self.unfinished += 1
            self.weight += weight
            self._queue.append(job)
            self._begin()
        return job

    def stop(self, *, for_now: bool = False) -> None:
        """Drop queued jobs, cancel running ones and join threads; `for_now` keeps idle ones for reuse."""
        if os.getpid() != self._pid:
            return  # after a fork, the threads are the parent's
        self._at_exit()
        with self._change:
            self._drop_all(Cancelled())
            self._scope.stop()
            if current() is not self._scope:  # garbage collection may call this on a pool thread
                self._change.wait_for(lambda: not self._threads, _STOP_SECONDS)
        if not for_now:
            end_idle()

    def _begin(self) -> None:
        while self._threads < _MAX_THREADS and (job := self._take()) is not None:
            self._threads += 1
            try:
                # Pass the job, so that the thread need not compete for one.
                on_thread("streamplug-prefetch", partial(self._work, job), self._ended)
            except RuntimeError:  # out of threads or memory
                self._threads -= 1
                self._running -= 1
                self._carried -= job.weight
                self._queue.appendleft(job)
                if not self._threads:
                    raise
                return

    def _take(self) -> Job | None:
        if self._scope.stopped or not self._may_begin():
            return None
        job = self._queue.popleft()
        self._running += 1
        self._carried += job.weight
        return job

    def _may_begin(self) -> bool:
        if not self._queue or self._running >= self._active:
            return False
        return (
            self._most is None
            or not self._running
            or self._carried + self._queue[0].weight <= self._most
        )

    def _add_running(self, number: int) -> None:
        with self._change:
            self._running += number
            self._begin()

    def _work(self, job: Job) -> None:
        following: Job | None = job
        with inside(self._scope):
            while following is not None:
                following.run()
                with self._change:
                    self._running -= 1
                    self._carried -= following.weight
                    self.unfinished -= 1
                    self.weight -= following.weight
                    following = self._take()
                    self._begin()

    def _ended(self) -> None:
        with self._change:
            self._threads -= 1
            try:
                self._begin()  # jobs submitted since the last `_take`
            except RuntimeError as error:
                self._drop_all(error)
            self._change.notify_all()

    def _drop_all(self, why: BaseException) -> None:
        while self._queue:
            job = self._queue.popleft()
            self.unfinished -= 1
            self.weight -= job.weight
            job.drop(why)


def run_jobs(jobs: list[Callable[[], object]], active: int) -> None:
    """Run jobs on up to `active` threads; raise the error of the first one in the list that fails."""
    if len(jobs) <= 1:
        for job in jobs:
            job()
        return
    workers = ThreadPool(active)
    try:
        for submitted in [workers.submit(job) for job in jobs]:
            submitted.wait()
            if submitted.error is not None:
                raise submitted.error
    finally:
        workers.stop()


def _at_exit(stop: Callable[[], None]) -> Callable[[], object]:
    """Register `stop` for the end of this process; return a function that unregisters it."""
    from multiprocessing.util import Finalize

    # Children forked by multiprocessing exit without atexit handlers.
    return Finalize(None, stop, exitpriority=100).cancel


__all__ = ["Cancelled", "Job", "ThreadPool", "run_jobs"]
