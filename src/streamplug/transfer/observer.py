"""Counters in shared memory and events of a data set, from every process and thread.

`observer_context` sets the observer of the current thread; `emit` sends it an event, and does nothing in
threads without one.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np

from streamplug.interfaces import (
    CacheHit,
    Callback,
    Event,
    RangesRead,
    RequestRetried,
    SampleSubstituted,
    ShardDownloaded,
    ShardEvicted,
    ShardRepaired,
    Stalled,
    Stats,
)
from streamplug.transfer.loop_clock import STORAGE, LoopClock
from streamplug.types import Int64, World

_LOG = logging.getLogger("streamplug.callbacks")
_NAMES = tuple(field.name for field in fields(Stats))
_INDEX = {name: index for index, name in enumerate(_NAMES)}
_TICKS = 10**9  # seconds are counted in nanoseconds

_PROCESSES = 256  # rows of counters for the workers of a rank, after the row of its own process
_LOOP, _LOOP_COUNT = len(_NAMES), len(_NAMES) + 1  # columns after those of the statistics
_COLUMNS = len(_NAMES) + 2
COUNTER_CELLS = (1 + _PROCESSES) * _COLUMNS

_COUNT_EVENT = ""
_COUNTS: Mapping[type[Event], Mapping[str, str]] = {
    ShardDownloaded: {
        "downloads": _COUNT_EVENT,
        "downloaded_bytes": "bytes",
        "download_seconds": "seconds",
    },
    CacheHit: {"cache_hits": _COUNT_EVENT},
    RangesRead: {"range_requests": "requests", "range_bytes": "bytes"},
    RequestRetried: {"retries": _COUNT_EVENT},
    ShardEvicted: {"evictions": _COUNT_EVENT, "evicted_bytes": "bytes"},
    ShardRepaired: {"repairs": _COUNT_EVENT},
    SampleSubstituted: {"substitutions": _COUNT_EVENT},
}
"""For each event, the counters it changes, and the attribute to add; `_COUNT_EVENT` adds 1."""


class Counters:
    """Counters in memory that the processes of a rank share; a pickled copy starts at zero."""

    def __init__(self) -> None:
        shared: Int64 = np.frombuffer(mmap.mmap(-1, 8 * COUNTER_CELLS), np.int64)
        self.use(shared, os.getpid())

    def __reduce__(self) -> tuple[Any, ...]:
        return Counters, ()

    def use(self, cells: Int64, home: int) -> None:
        """Switch to other memory: int64, shape ``[COUNTER_CELLS]``, initially zero."""
        self.cells = cells  # shape [COUNTER_CELLS]
        self._rows = cells.reshape(-1, _COLUMNS)
        self.home = home  # PID of the process that owns the first row
        self._own: dict[int, tuple[Int64, threading.RLock]] = {}

    def add(self, **amounts: float) -> None:
        """Add to counters by name; times are in seconds."""
        row, lock = self._mine()
        with lock:
            for name, amount in amounts.items():
                row[_INDEX[name]] += _to_ticks(name, amount)

    def count_in_loop(self, loop: int, count: int) -> int:
        """Set the count of this process in a loop; return the total over all processes of the loop.

        `loop` is a number above 0 that no other loop of the rank has. Loops of a process may take turns.
        """
        row, lock = self._mine()
        with lock:
            if row[_LOOP] != loop:
                row[_LOOP_COUNT], row[_LOOP] = 0, loop
            row[_LOOP_COUNT] = count
        return int(self._rows[self._rows[:, _LOOP] == loop, _LOOP_COUNT].sum())

    def totals(self, **more: float) -> Stats:
        """Return the totals over all processes, plus `more`."""
        sums = self._rows.sum(0)
        for name, amount in more.items():
            sums[_INDEX[name]] += _to_ticks(name, amount)
        return Stats(
            **{name: _from_ticks(name, total) for name, total in zip(_NAMES, sums.tolist())}
        )

    def lock(self) -> threading.RLock:
        """Return the reentrant lock with which the threads of this process add to counters."""
        return self._mine()[1]

    def _mine(self) -> tuple[Int64, threading.RLock]:
        # Each process has its own row and lock, as a lock copied by fork may be held forever. It is
        # reentrant for signal handlers and the garbage collector.
        pid = os.getpid()
        own = self._own.get(pid)
        if own is None:  # setdefault: concurrent threads must share one lock
            own = self._own.setdefault(pid, (self._rows[self._row(pid)], threading.RLock()))
        return own

    def _row(self, pid: int) -> int:
        if pid == self.home:
            return 0
        return 1 + (process_number() or pid) % _PROCESSES


def process_number() -> int | None:
    """Return the number of this process among its multiprocessing siblings; None in a main process."""
    import multiprocessing

    # The name may be changed, and the number has no public attribute.
    identity = vars(multiprocessing.current_process())["_identity"]
    return int(identity[-1]) if identity else None


def _to_ticks(name: str, amount: float) -> int:
    return round(amount * _TICKS) if name.endswith("_seconds") else int(amount)


def _from_ticks(name: str, total: int) -> Any:
    return total / _TICKS if name.endswith("_seconds") else total


class Observer:
    """Counts the events of a data set and calls its callbacks; `process` is the `World` of this process."""

    def __init__(self, callbacks: Sequence[Callback] = (), process: World | None = None) -> None:
        self.counters = Counters()
        self.process = process or World()
        self._callbacks = tuple(callbacks)
        self._complaints: dict[tuple[int, type[BaseException]], object] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_complaints": {}}

    def attach(self, stats: Callable[[], Stats], urls: Sequence[str]) -> None:
        """Call `on_attach` with the function that returns the statistics, and the URLs of the streams."""
        for number, callback in enumerate(self._callbacks):
            self._guarded(number, callback.on_attach, stats, urls, self.process)

    def drop_callbacks(self) -> None:
        """Call none from now on."""
        self._callbacks = ()

    def emit(self, event: Event) -> None:
        """Count an event and call the callbacks."""
        counts = _COUNTS.get(type(event))
        if counts is not None:
            amounts = {name: getattr(event, of) if of else 1 for name, of in counts.items()}
            self.counters.add(**amounts)
        for number, callback in enumerate(self._callbacks):
            self._guarded(number, callback.on_event, event, self.process)

    def _guarded(self, number: int, call: Callable[..., None], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - a callback must not stop a training
            complaint = object()
            if self._complaints.setdefault((number, type(error)), complaint) is complaint:
                _LOG.exception(
                    "%r failed; reading goes on, and this is said once", self._callbacks[number]
                )

    @contextmanager
    def waiting(self, clock: LoopClock, shard: int, file: str) -> Iterator[None]:
        """Emit `Stalled` with the time of a block that waits for a shard, and count it."""
        clock.enter(STORAGE)
        yield
        self.emit(Stalled(shard, file, clock.leave()))


class TransferTask:
    """A transfer of `url` that one or more threads carry out for an observer; counts `retries`."""

    __slots__ = ("observer", "retries", "url")

    def __init__(self, observer: Observer | None, url: str) -> None:
        self.observer, self.url, self.retries = observer, url, 0


class _Current(threading.local):
    task: TransferTask | None = None


_current = _Current()


def current() -> TransferTask | None:
    """Return the task of this thread, to share it with another thread."""
    return _current.task


@contextmanager
def task_context(task: TransferTask | None) -> Iterator[None]:
    """Set the task of this thread."""
    before, _current.task = _current.task, task
    try:
        yield
    finally:
        _current.task = before


@contextmanager
def observer_context(observer: Observer | None, url: str = "") -> Iterator[None]:
    """Set the observer of this thread, and the URL in its events."""
    with task_context(TransferTask(observer, url)):
        yield


def emit(event: Event) -> None:
    """Send an event to the observer of this thread, if any."""
    task = _current.task
    if task is not None and task.observer is not None:
        task.observer.emit(event)


def emit_retry(cause: str, pause: float) -> None:
    """Emit `RequestRetried`; `pause` is in seconds."""
    task = _current.task
    if task is not None:
        task.retries += 1
        emit(RequestRetried(task.url, cause, pause))


def track_download(download: Callable[[], object], url: str, size: int) -> ShardDownloaded:
    """Call a function that downloads `size` bytes; return the event to emit when the file is in the cache."""
    outer, began = _current.task, time.monotonic()
    task = TransferTask(outer.observer if outer else None, url)
    with task_context(task):
        download()
    return ShardDownloaded(url, size, time.monotonic() - began, 1 + task.retries)
