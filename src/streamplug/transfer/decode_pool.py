"""Decoding of blocks, on threads where a block takes long enough."""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from time import perf_counter
from typing import Generic, NamedTuple, TypeVar

from streamplug.transfer.pool import Job, ThreadPool

T = TypeVar("T")
V = TypeVar("V")
N = TypeVar("N")

_WORTH = 0.005
"""Seconds that a block must take to be made by a thread: Python lets another thread run so late, at worst."""

_FEW, _MANY = 8, 1024
"""Blocks that threads make before one is made without them again, to see how long they take now."""

_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # only Linux tells threads apart


class _Instant(NamedTuple):
    """An instant in what this thread does: the time, that of the processor, and how often it waited."""

    time: float
    busy: float
    waits: int

    @classmethod
    def now(cls) -> _Instant:
        usage = resource.getrusage(_WHOSE)
        return cls(perf_counter(), usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)

    def since(self) -> float:
        """Return the seconds since then, without those in which it could have gone on but had to stand by."""
        now = self.now()
        return now.busy - self.busy if now.waits == self.waits else now.time - self.time


class DecodePool(Generic[T, V, N]):
    """Makes values of blocks, ahead of their use as far as threads make them."""

    def __init__(self, make: Callable[[T], Iterable[V]], threads: int) -> None:
        """Call `make` on so many threads at once, if any; none are started before `add`."""
        self._make, self._threads = make, threads
        self._workers = ThreadPool(threads) if threads else None
        self._queue: deque[tuple[list[V], Job, N]] = deque()
        self._next, self._patience, self._slow = 0, _FEW, False

    def __len__(self) -> int:
        """Return how many blocks were added and not asked for yet."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether each thread has a block, and another one waits."""
        return len(self._queue) > self._threads

    @property
    def worthwhile(self) -> bool:
        """Whether the next block is to be added: those that were last made by `here` took long."""
        return self._next > 0

    def here(self, block: T) -> Iterator[V]:
        """Yield the values of a block, made when they are asked for."""
        seconds = 0.0
        began = _Instant.now()
        for value in self._make(block):
            seconds += began.since()
            yield value
            began = _Instant.now()
        seconds += began.since()
        before, self._slow = self._slow, seconds >= _WORTH
        if not self._slow:
            self._patience = _FEW
        elif before and self._threads:  # a single one may have had to open files
            self._next, self._patience = self._patience, min(2 * self._patience, _MANY)

    def add(self, block: T, note: N) -> None:
        """Begin with a block; `note` comes back with it. There must be threads."""
        values: list[V] = []
        if self._workers is not None:
            job = self._workers.submit(lambda: values.extend(self._make(block)))
            self._queue.append((values, job, note))
            self._next -= 1

    def next(self) -> Generator[V, None, N]:
        """Yield the values of the oldest block, and return its note.

        Raises:
            BaseException: What `make` raised, after the values before that.
        """
        values, job, note = self._queue.popleft()
        job.wait()
        yield from values
        if job.error is not None:
            raise job.error
        return note

    def stop(self) -> None:
        """End the threads, whatever they are at."""
        if self._workers is not None:
            self._workers.stop()


def decode_blocks(
    blocks: Iterable[T], make: Callable[[T], Iterable[V]], threads: int
) -> Generator[V, None, None]:
    """Yield what is made of blocks for which nothing has to be fetched.

    Args:
        blocks: In the order of their use.
        make: Makes their values; called on several threads at once.
        threads: How many.

    Raises:
        BaseException: What `make` raised, after the values before that.
    """
    makers: DecodePool[T, V, None] = DecodePool(make, threads)
    try:
        for block in blocks:
            if makers.worthwhile:
                makers.add(block, None)
                if makers.busy:
                    yield from makers.next()
                continue
            while makers:
                yield from makers.next()
            yield from makers.here(block)
        while makers:
            yield from makers.next()
    finally:
        makers.stop()
