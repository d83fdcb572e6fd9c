"""Threads that make values of blocks, several at once, in the order of the blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

from streamplug.fetch.workers import Job, Workers

T = TypeVar("T")
V = TypeVar("V")
N = TypeVar("N")


class Makers(Generic[T, V, N]):
    """Makes values of blocks ahead of their use."""

    def __init__(self, make: Callable[[T], Iterable[V]], threads: int) -> None:
        """Call `make` on so many threads at once; none are started before `add`."""
        self._make, self._threads = make, threads
        self._workers = Workers(threads) if threads else None
        self._queue: deque[tuple[list[V], Job, N]] = deque()

    def __len__(self) -> int:
        """Return how many blocks were added and not asked for yet."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether each thread has a block, and another one waits."""
        return len(self._queue) > self._threads

    def add(self, block: T, note: N) -> None:
        """Begin with a block; `note` comes back with it. There must be threads."""
        values: list[V] = []
        if self._workers is not None:
            job = self._workers.submit(lambda: values.extend(self._make(block)))
            self._queue.append((values, job, note))

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
