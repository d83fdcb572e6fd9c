"""Thread pool that decodes blocks ahead of their use, if decoding a block takes long enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from time import perf_counter
from typing import Generic, TypeVar

from streamplug.transfer.loop_clock import HANDOVER, LoopClock, WorkTime, counting_job
from streamplug.transfer.pool import Job, ThreadPool, end_idle_threads

T = TypeVar("T")
V = TypeVar("V")
N = TypeVar("N")

MIN_BLOCK_SECONDS = 0.005  # the switch interval of Python
"""Minimum time to decode a block on a thread.

In ``tests/benchmarks/bench_read.py`` small rows take 12 % longer on two threads without the minimum.
"""

SLOW_BLOCKS = 2  # in a row, before threads are used: a single block may have opened files


class DecodePool(Generic[T, V, N]):
    """Decodes blocks on threads, and returns their values in order."""

    def __init__(
        self,
        decode: Callable[[T], Iterable[V]],
        num_threads: int,
        clock: LoopClock | None = None,
    ) -> None:
        """Call `decode` on up to `num_threads` threads at once; `clock` counts the waits for them."""
        self._decode, self._num_threads = decode, num_threads
        self._pool = ThreadPool(num_threads)
        self._queue: deque[tuple[list[V], Job[WorkTime], N]] = deque()
        self._clock = clock or LoopClock()
        self._slow_blocks = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether each thread has a block and another one is queued."""
        return len(self._queue) > self._num_threads

    @property
    def is_worthwhile(self) -> bool:
        """Whether to `add` the next block: the last ones decoded by `decode` took long."""
        return self._num_threads > 0 and self._slow_blocks >= SLOW_BLOCKS

    def decode(self, block: T) -> Iterator[V]:
        """Yield the values of a block, decoded on this thread as they are consumed."""
        seconds, start = 0.0, perf_counter()
        for value in self._decode(block):
            seconds += perf_counter() - start
            yield value
            start = perf_counter()
        seconds += perf_counter() - start
        self._slow_blocks = self._slow_blocks + 1 if seconds >= MIN_BLOCK_SECONDS else 0

    def add(self, block: T, note: N) -> None:
        """Queue a block; `next` returns its `note`."""
        values: list[V] = []
        job = self._pool.submit(lambda: self._collect(block, values))
        self._queue.append((values, job, note))

    def _collect(self, block: T, values: list[V]) -> WorkTime:
        with counting_job() as clock:
            values.extend(self._decode(block))
        return clock.take()

    def next(self) -> Generator[V, None, N]:
        """Yield the values of the oldest block and return its note, or raise the error of `decode`."""
        values, job, note = self._queue.popleft()
        if not job.done:
            self._clock.enter(HANDOVER)
            job.wait()
            self._clock.leave_to(WorkTime() if job.error else job.result)
        yield from values
        job.take()
        return note

    def stop(self) -> None:
        """Stop the threads, interrupting their jobs, and drop the blocks that `next` has not returned."""
        self._pool.stop()
        self._queue.clear()


def decode_blocks(
    blocks: Iterable[T],
    decode: Callable[[T], Iterable[V]],
    num_threads: int,
    clock: LoopClock | None = None,
) -> Generator[V, None, None]:
    """Yield the values of blocks that need no download, decoded on up to `num_threads` threads.

    `clock` counts the waits for these.
    """
    pool: DecodePool[T, V, None] = DecodePool(decode, num_threads, clock)
    try:
        for block in blocks:
            if not pool.is_worthwhile:
                yield from pool.decode(block)
                continue
            pool.add(block, None)
            if pool.is_full:
                yield from pool.next()
        while pool:
            yield from pool.next()
    finally:
        pool.stop()
        end_idle_threads()
