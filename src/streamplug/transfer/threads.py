"""Daemon threads that are reused for a short time, as starting one can take longer than a request."""

from __future__ import annotations

import os
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from streamplug.transfer.pool import Job

IDLE_SECONDS = 0.5
"""Time without work after which a thread ends.

In ``tests/benchmarks/bench_remote.py`` reading by ranges takes 20 % more processor time without reuse.
"""

_JOIN_SECONDS = 5.0


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
