"""Seconds that a loop spends in `next()`, by cause."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter  # the same clock in all processes

STORAGE, DECODE, TRANSFORM, HANDOVER = range(4)
CAUSES = ("storage", "decode", "transform", "handover")
"""The names of the causes, which `Stats` has as ``storage_wait_seconds`` and so on."""


@dataclass(frozen=True, slots=True)
class WorkTime:
    """When a worker or thread made something, and the seconds that it took by cause; all are equal."""

    began: float = field(default=0.0, compare=False)
    ended: float = field(default=0.0, compare=False)
    seconds: tuple[float, ...] = field(default=(0.0,) * len(CAUSES), compare=False)


class LoopClock:
    """Adds up the seconds in which the user of a loop waits, by cause.

    Causes nest, and time counts for the innermost. Outside of all, it is the user's own, and is not counted.

    Attributes:
        seconds: Seconds so far, by cause.
    """

    _first_wait = _outside = 0.0

    def __init__(self) -> None:
        self.seconds = [0.0] * len(CAUSES)
        self._causes: list[int] = []
        self._since = 0.0

    def enter(self, cause: int) -> None:
        """Count for a cause from now on."""
        now, causes = perf_counter(), self._causes
        if causes:
            self.seconds[causes[-1]] += now - self._since
        elif self._since:
            if not self._outside:
                self._first_wait = sum(self.seconds)
            self._outside += now - self._since
        causes.append(cause)
        self._since = now

    def leave(self) -> float:
        """Count for the cause before again; return the seconds since the last call."""
        now = perf_counter()
        passed, self._since = now - self._since, now
        self.seconds[self._causes.pop()] += passed
        return passed

    def leave_to(self, work: WorkTime) -> None:
        """Leave a wait for a worker; while the worker worked, its causes were those of the wait."""
        now, since = perf_counter(), self._since
        total = sum(work.seconds)
        shared = max(min(now, work.ended) - max(since, work.began), 0.0) if total else 0.0
        for cause, seconds in enumerate(work.seconds if shared else ()):
            self.seconds[cause] += shared * seconds / total
        self.seconds[self._causes.pop()] += now - since - shared
        self._since = now

    @property
    def seconds_from_first(self) -> float:
        """Seconds from the first end of all causes to the last call, inside and outside of them."""
        return self._outside + sum(self.seconds) - self._first_wait

    def take(self) -> WorkTime:
        """Return what was counted since this was called last, or since the start; outside of all causes."""
        seconds, self.seconds = tuple(self.seconds), [0.0] * len(CAUSES)
        return WorkTime(self._since - sum(seconds), self._since, seconds)


class _Job(threading.local):
    clock: LoopClock | None = None


_job = _Job()


def job_clock() -> LoopClock | None:
    """Return the clock of the job that runs on this thread; None where none does."""
    return _job.clock


@contextmanager
def counting_job() -> Iterator[LoopClock]:
    """Count the time of a job on this thread, first of all for decoding."""
    clock = _job.clock = LoopClock()
    clock.enter(DECODE)
    try:
        yield clock
        clock.leave()
    finally:
        _job.clock = None
