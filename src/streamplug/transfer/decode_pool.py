"""Thread pool that decodes blocks, used where decoding a block takes long enough."""

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

_WORTH = 0.005  # minimum seconds per block for threads: the switch interval of Python
_FEW, _MANY = 8, 1024  # minimum and maximum number of blocks between measurements without threads
_WHOSE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)  # per-thread usage on Linux only


class _Instant(NamedTuple):
    """Wall time, CPU time and voluntary context switches of this thread."""

    time: float
    busy: float
    waits: int

    @classmethod
    def now(cls) -> _Instant:
        usage = resource.getrusage(_WHOSE)
        return cls(perf_counter(), usage.ru_utime + usage.ru_stime, usage.ru_nvcsw)

    def since(self) -> float:
        """Return the seconds since then; CPU time if the thread never blocked, to exclude preemption."""
        now = self.now()
        return now.busy - self.busy if now.waits == self.waits else now.time - self.time


class DecodePool(Generic[T, V, N]):
    """Decodes blocks ahead of their use, on threads if there are any."""

    def __init__(self, make: Callable[[T], Iterable[V]], threads: int) -> None:
        """Call `make` on up to `threads` threads at once; none are started before `add`."""
        self._make, self._threads = make, threads
        self._workers = ThreadPool(threads) if threads else None
        self._queue: deque[tuple[list[V], Job, N]] = deque()
        self._next, self._patience, self._slow = 0, _FEW, False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether each thread has a block and another one is queued."""
        return len(self._queue) > self._threads

    @property
    def worthwhile(self) -> bool:
        """Whether to `add` the next block: the last ones decoded by `here` took long."""
        return self._next > 0

    def here(self, block: T) -> Iterator[V]:
        """Yield the values of a block, decoded on this thread as they are consumed."""
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
        elif before and self._threads:  # twice in a row: a single block may have opened files
            self._next, self._patience = self._patience, min(2 * self._patience, _MANY)

    def add(self, block: T, note: N) -> None:
        """Queue a block for the threads; `next` returns its `note`."""
        values: list[V] = []
        if self._workers is not None:
            job = self._workers.submit(lambda: values.extend(self._make(block)))
            self._queue.append((values, job, note))
            self._next -= 1

    def next(self) -> Generator[V, None, N]:
        """Yield the values of the oldest block and return its note, or raise the error of `make`."""
        values, job, note = self._queue.popleft()
        job.wait()
        yield from values
        if job.error is not None:
            raise job.error
        return note

    def stop(self) -> None:
        """Stop the threads, interrupting their jobs."""
        if self._workers is not None:
            self._workers.stop()


def decode_blocks(
    blocks: Iterable[T], make: Callable[[T], Iterable[V]], threads: int
) -> Generator[V, None, None]:
    """Yield the values of blocks that need no download, decoded on up to `threads` threads."""
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
