"""Counts what happens, and tells callbacks of it, in whatever process and thread it happens.

Whoever makes a thread do something for a data set says so with `observer_context`; what happens in there is
then told with `emit`, which does nothing elsewhere.
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

from streamplug.interfaces.callback import (
    CacheHit,
    Callback,
    Event,
    RangesRead,
    RequestRetried,
    ShardDownloaded,
    ShardEvicted,
    ShardRepaired,
    Stalled,
    Stats,
)
from streamplug.types import Int64, World

_LOG = logging.getLogger("streamplug.callbacks")
_NAMES = tuple(field.name for field in fields(Stats))
_INDEX = {name: index for index, name in enumerate(_NAMES)}
_TICKS = 10**9
"""Seconds are counted in whole nanoseconds."""

_PROCESSES = 256
CELLS = (1 + _PROCESSES) * len(_NAMES)
"""How many int64 the counts of a rank take: a row for its own process, and some for its workers."""

_ONE = ""
_COUNTS: Mapping[type[Event], Mapping[str, str]] = {
    ShardDownloaded: {
        "downloads": _ONE,
        "downloaded_bytes": "bytes",
        "download_seconds": "seconds",
    },
    CacheHit: {"cache_hits": _ONE},
    RangesRead: {"range_requests": "requests", "range_bytes": "bytes"},
    RequestRetried: {"retries": _ONE},
    ShardEvicted: {"evictions": _ONE, "evicted_bytes": "bytes"},
    ShardRepaired: {"repairs": _ONE},
    Stalled: {"wait_seconds": "seconds"},
}
"""What an event adds to which counts: one of its attributes, or one."""


class Counters:
    """What was counted, in memory that the processes of a rank share; a copy counts for itself.

    Attributes:
        cells: The counts, shape ``[CELLS]``.
        home: The process whose own row is the first.
    """

    def __init__(self) -> None:
        """Count from zero, in memory that forks share."""
        shared: Int64 = np.frombuffer(mmap.mmap(-1, 8 * CELLS), np.int64)
        self.use(shared, os.getpid())

    def __reduce__(self) -> tuple[Any, ...]:
        return Counters, ()

    def use(self, cells: Int64, home: int) -> None:
        """Count in other memory.

        Args:
            cells: int64, shape ``[CELLS]``, zeros at first.
            home: As the attribute.
        """
        self.cells = cells
        self._rows = cells.reshape(-1, len(_NAMES))
        self.home = home
        self._own: dict[int, tuple[Int64, threading.RLock]] = {}

    def add(self, **amounts: float) -> None:
        """Add to counts by name; seconds as such."""
        row, lock = self._mine()
        with lock:
            for name, amount in amounts.items():
                row[_INDEX[name]] += _whole(name, amount)

    def totals(self, **more: float) -> Stats:
        """Return the totals over all processes, and more."""
        sums = self._rows.sum(0)
        for name, amount in more.items():
            sums[_INDEX[name]] += _whole(name, amount)
        return Stats(**{name: _told(name, total) for name, total in zip(_NAMES, sums.tolist())})

    def _mine(self) -> tuple[Int64, threading.RLock]:
        # Nobody adds to another's row; a fork's copy of the lock may be held for ever. While it is held, a
        # signal or the collector may have this thread add something else.
        pid = os.getpid()
        mine = self._own.get(pid)
        if mine is None:  # of several threads that come here at once, all take the first one's lock
            mine = self._own.setdefault(pid, (self._rows[self._row(pid)], threading.RLock()))
        return mine

    def _row(self, pid: int) -> int:
        if pid == self.home:
            return 0
        return 1 + (process_number() or pid) % _PROCESSES


def process_number() -> int | None:
    """Return the number of this process among those that its parent started; None if nobody started it."""
    import multiprocessing

    # Processes may be renamed, and there is no public name for the number.
    identity = vars(multiprocessing.current_process())["_identity"]
    return int(identity[-1]) if identity else None


def _whole(name: str, amount: float) -> int:
    return round(amount * _TICKS) if name.endswith("_seconds") else int(amount)


def _told(name: str, total: int) -> Any:
    return total / _TICKS if name.endswith("_seconds") else total


class Observer:
    """Counts what happens for one data set, and tells its callbacks.

    Attributes:
        counters: The counts.
        place: Where this process stands.
    """

    def __init__(self, callbacks: Sequence[Callback] = (), place: World | None = None) -> None:
        """Tell these callbacks, in their order."""
        self.counters = Counters()
        self.place = place or World()
        self._callbacks = tuple(callbacks)
        self._complaints: dict[tuple[int, type[BaseException]], object] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_complaints": {}}

    def attach(self, urls: Sequence[str]) -> None:
        """Tell the callbacks where the streams of the data set lie."""
        for number, callback in enumerate(self._callbacks):
            self._guarded(number, callback.on_attach, self.counters.totals, urls, self.place)

    def emit(self, event: Event) -> None:
        """Count an event and tell the callbacks."""
        counts = _COUNTS.get(type(event))
        if counts is not None:
            amounts = {name: getattr(event, of) if of else 1 for name, of in counts.items()}
            self.counters.add(**amounts)
        for number, callback in enumerate(self._callbacks):
            self._guarded(number, callback.on_event, event, self.place)

    def _guarded(self, number: int, call: Callable[..., None], *given: object) -> None:
        try:
            call(*given)
        except Exception as error:  # noqa: BLE001 - whoever only watches must not stop a training
            mine = object()
            if self._complaints.setdefault((number, type(error)), mine) is mine:
                _LOG.exception(
                    "%r failed; reading goes on, and this is said once", self._callbacks[number]
                )

    @contextmanager
    def waiting(self, shard: int, file: str) -> Iterator[None]:
        """Time a block that waits for a shard."""
        began = time.monotonic()
        yield
        self.emit(Stalled(shard, file, time.monotonic() - began))


# -- what a thread does, and for whom ---------------------------------------------------


class TransferTask:
    """What one or several threads do for an observer.

    Attributes:
        observer: It.
        url: The file that this is about.
        retries: Attempts that were made again.
    """

    __slots__ = ("observer", "retries", "url")

    def __init__(self, observer: Observer | None, url: str) -> None:
        self.observer, self.url, self.retries = observer, url, 0


class _Current(threading.local):
    task: TransferTask | None = None


_current = _Current()


def current() -> TransferTask | None:
    """Return what this thread does, to have another thread help with it."""
    return _current.task


@contextmanager
def task_context(task: TransferTask | None) -> Iterator[None]:
    """Let this thread work on a task."""
    before, _current.task = _current.task, task
    try:
        yield
    finally:
        _current.task = before


@contextmanager
def observer_context(observer: Observer | None, url: str = "") -> Iterator[None]:
    """Let an observer know what this thread does during a block, which is about a file at a URL."""
    with task_context(TransferTask(observer, url)):
        yield


def emit(event: Event) -> None:
    """Tell the observer of this thread of an event, if there is one."""
    task = _current.task
    if task is not None and task.observer is not None:
        task.observer.emit(event)


def emit_retry(cause: str, pause: float) -> None:
    """Tell the observer that something failed and will be tried again, after a pause in seconds."""
    task = _current.task
    if task is not None:
        task.retries += 1
        emit(RequestRetried(task.url, cause, pause))


@contextmanager
def track_download(url: str, size: int) -> Iterator[None]:
    """Tell the observer of a download that a block makes, of so many bytes."""
    outer, began = _current.task, time.monotonic()
    task = TransferTask(outer.observer if outer else None, url)
    with task_context(task):
        yield
    emit(ShardDownloaded(url, size, time.monotonic() - began, 1 + task.retries))


@contextmanager
def track_ranges(
    observer: Observer | None, url: str, ranges: Sequence[tuple[int, int]]
) -> Iterator[None]:
    """Let an observer know of the parts of a file that a block fetches."""
    began = time.monotonic()
    with task_context(TransferTask(observer, url)):
        yield
    if observer is not None:
        size = sum(stop - start for start, stop in ranges)
        observer.emit(RangesRead(url, len(ranges), size, time.monotonic() - began))
