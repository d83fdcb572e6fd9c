"""Prefetching of the data that the next blocks need."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from streamplug.plugin_kit import is_full_disk
from streamplug.transfer.decode_pool import DecodePool
from streamplug.transfer.loop_clock import LoopClock
from streamplug.transfer.pool import ThreadPool, end_idle_threads
from streamplug.types import Int64

V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

_MAX_BLOCKS_PER_FILL = 8
"""Maximum number of blocks added per `fill`, which must not delay the consumer; starts at 1."""
_MAX_QUEUED_JOBS = 512
"""Number of unfinished jobs from which on no block is added to a window that adapts."""


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """Limits of the prefetch window; None is unlimited."""

    samples: int | None = None  # samples after the current block; None adapts to the throughput
    bytes: int = 512 << 20  # size of the window, if it adapts or is strict
    strict: bool = False  # whether `bytes` also limits a fixed number of samples
    max_running: int = 8  # concurrent jobs
    max_samples: int | None = None  # samples after the current block, exceeded by less than a block
    bytes_in_flight: int = 32 << 20  # doubled, up to `bytes`, when the consumer waits

    @classmethod
    def common(cls, limits: Iterable[PrefetchLimits]) -> PrefetchLimits:
        """Return the limits if all are the same, else the default ones."""
        distinct = set(limits)
        return distinct.pop() if len(distinct) == 1 else cls()


class PrefetchBlock(Protocol):
    """A block of samples."""

    ids: Int64  # sample ids, shape [n]

    def split(self: B) -> Sequence[B]:  # noqa: PYI019 - typing.Self needs Python 3.11
        """Split the block into parts that can be used one by one."""


B = TypeVar("B", bound=PrefetchBlock)


class PrefetchReader(Protocol[K]):
    """What prefetching needs of a reader; a key is one requirement of samples, such as a shard."""

    def needs(self, ids: Int64, /) -> Sequence[K]:
        """Return the keys that samples need, the most urgent first."""

    def weight(self, key: K, /) -> int:
        """Return the weight of a key in bytes."""

    def ensure(self, key: K, /) -> object:
        """Make a key ready; called on several threads at once."""

    def claim(self, key: K, /) -> object:
        """Note that a key is needed, before it is queued."""

    def release(self, key: K, /) -> object:
        """Note that no block in the window needs a key any more."""


def prefetch_blocks(
    blocks: Iterable[B],
    reader: PrefetchReader[K],
    use: Callable[[B], Iterable[V]],
    limits: PrefetchLimits,
    *,
    num_threads: int = 0,
    waiting: Callable[[K], AbstractContextManager[None]] = lambda _: nullcontext(),
    clock: LoopClock | None = None,
    handover: Handover | None = None,
) -> Generator[V, None, None]:
    """Use blocks in order as their requirements become ready, while prefetching those of later blocks.

    `use` returns the values of a block; if a requirement failed, it is called for the parts before it. Those
    that failed on a full disk are tried again in their turn, when the blocks before have been used. Up to
    `num_threads` other threads run it if it takes long enough; with 0, only this one does. `waiting` is
    entered while this thread waits for a key, and `clock` counts waits for threads. Jobs go on that
    `handover` has of a generator before this one.

    Raises:
        StreamplugError: The error of `ensure`, at the first part of a block that needs the failed key.
    """
    handover = handover or Handover()
    window: PrefetchWindow[B, K] = handover.window(iter(blocks), reader, limits)
    pool: DecodePool[B, V, Sequence[K]] = DecodePool(use, num_threads, clock or LoopClock())
    has_begun = False
    try:
        while window.look() or pool:
            if pool and (pool.is_full or not window.ready()):
                window.forget((yield from pool.next()))
                continue
            block, keys, failed = _await(window.pop(alone=not has_begun), waiting)
            if has_begun:
                window.fill()
                if pool.is_worthwhile and not failed:
                    pool.add(block, keys)
                    continue
            while pool:
                window.forget((yield from pool.next()))
            for part in _parts_before_failure(block, reader, failed) if failed else (block,):
                for value in pool.decode(part):
                    if not has_begun:  # so that prefetching does not delay the first sample
                        has_begun = True
                        window.fill()
                    yield value
            window.forget(keys)
    finally:
        try:
            pool.stop()
        finally:
            handover.end(window)
            end_idle_threads()


class Handover:
    """Hands jobs over from `prefetch_blocks` to the next one, which reads on elsewhere in the same data."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._window: PrefetchWindow[Any, Any] | None = None

    def leave(self, blocks: Generator[Any, None, None]) -> None:
        """Close a generator that is or uses `prefetch_blocks`, without stopping its jobs."""
        self._is_wanted = True
        try:
            blocks.close()
        finally:
            self._is_wanted = False

    def window(
        self, blocks: Iterator[B], reader: PrefetchReader[K], limits: PrefetchLimits
    ) -> PrefetchWindow[B, K]:
        """Return the window of the generator that was left, with other blocks; else a new one."""
        window, self._window = self._window, None
        if window is None:
            return PrefetchWindow(blocks, reader, limits, ThreadPool(limits.max_running))
        window.replace(blocks, reader, limits)
        return window

    def end(self, window: PrefetchWindow[Any, Any]) -> None:
        """Keep the window of a generator that is being left; else close it."""
        if self._is_wanted:
            self.close()
            self._window = window
        else:
            window.close()

    def close(self) -> None:
        """Stop the jobs that no generator has taken over."""
        window, self._window = self._window, None
        if window is not None:
            window.close()


def _parts_before_failure(
    block: B, reader: PrefetchReader[K], failed: dict[K, BaseException]
) -> Generator[B, None, None]:
    for part in block.split():
        for key in reader.needs(part.ids):
            if key not in failed:
                continue
            if not is_full_disk(failed[key]):
                raise failed.pop(key)
            del failed[key]
            reader.ensure(key)  # now that the blocks before it take no more room
        yield part


def _await(
    steps: Generator[tuple[K, Work], None, V],
    waiting: Callable[[K], AbstractContextManager[None]],
) -> V:
    """Wait for each job that a generator yields; return its value."""
    while True:
        try:
            key, job = next(steps)
        except StopIteration as end:
            result: V = end.value
            return result
        with waiting(key):
            job.wait()


class Work(Protocol):
    """A job in progress; see `Job`."""

    error: BaseException | None

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> object:
        """Wait until it has ended."""


class JobQueue(Protocol):
    """A queue of jobs; see `ThreadPool`."""

    unfinished: int
    weight: int

    def submit(self, work: Callable[[], object], weight: int = 0) -> Work:
        """Queue a job that weighs `weight` bytes."""

    def stop(self) -> None:
        """Drop all jobs that have not ended."""


class PrefetchWindow(Generic[B, K]):
    """The blocks ahead of the consumer, and the jobs in flight for them.

    It neither waits nor reads a clock, so that a simulation can drive it.
    """

    def __init__(
        self,
        blocks: Iterator[B],
        reader: PrefetchReader[K],
        limits: PrefetchLimits,
        queue: JobQueue,
    ) -> None:
        self._blocks, self._reader, self._limits, self._queue = blocks, reader, limits, queue
        self._window: deque[tuple[B, Sequence[K]]] = deque()
        self._jobs: dict[K, Work] = {}
        self._earlier_jobs: dict[K, Work] = {}  # of blocks before `replace`
        self._begun: set[K] = set()  # keys of jobs that are running or have ended
        self._users: Counter[K] = Counter()
        self._samples = self._bytes = 0
        self._max_bytes_in_flight = limits.bytes_in_flight
        self._blocks_per_fill = 1

    def look(self) -> bool:
        """Return whether there is a next block, pulling it if necessary."""
        return bool(self._window) or self._pull()

    def ready(self) -> bool:
        """Return whether there is a next block whose requirements are all ready."""
        return self.look() and all(self._jobs[key].done for key in self._window[0][1])

    def fill(self) -> None:
        """Extend the window up to its limits, a few blocks at a time."""
        num_blocks = self._blocks_per_fill if self._limits.samples is None else sys.maxsize
        self._blocks_per_fill = min(2 * self._blocks_per_fill, _MAX_BLOCKS_PER_FILL)
        while num_blocks > 0 and (has_more := self._has_room() and self._pull()):
            num_blocks -= 1
        if num_blocks > 0 and not has_more:
            self._forget_earlier_jobs()

    def replace(
        self, blocks: Iterator[B], reader: PrefetchReader[K], limits: PrefetchLimits
    ) -> None:
        """Go on with other blocks: jobs that are queued are dropped, others are used if blocks need them."""
        self._blocks, self._reader, self._limits = blocks, reader, limits
        self._window.clear()
        for key, job in self._jobs.items():
            if key in self._begun:
                self._earlier_jobs[key] = job
            else:
                self._reader.release(key)
        self._jobs.clear()
        self._users.clear()
        self._samples = self._bytes = 0
        self._blocks_per_fill = 1

    def _forget_earlier_jobs(self) -> None:
        for key in list(self._earlier_jobs):
            del self._earlier_jobs[key]
            self._begun.discard(key)
            self._reader.release(key)

    def _ensure(self, key: K) -> object:
        if key not in self._users:  # it was dropped while it was queued
            return None
        self._begun.add(key)
        return self._reader.ensure(key)

    def _start(self, key: K) -> Work:
        """Return the job of a key: one that is running or has ended already, or a new one."""
        earlier = self._earlier_jobs.pop(key, None)
        if earlier is not None and earlier.error is None:
            return earlier
        if earlier is None:
            self._reader.claim(key)
        return self._queue.submit(partial(self._ensure, key), self._reader.weight(key))

    def _pull(self) -> bool:
        """Add the next block to the window; return False at the end."""
        block = next(self._blocks, None)
        if block is None:
            return False
        keys = self._reader.needs(block.ids)
        for key in keys:
            self._users[key] += 1
            if key not in self._jobs:
                self._bytes += self._reader.weight(key)
                self._jobs[key] = self._start(key)
        self._window.append((block, keys))
        self._samples += block.ids.size
        return True

    def _has_room(self) -> bool:
        """Return whether the window is below its limits."""
        limits, queue = self._limits, self._queue
        if self._bytes >= limits.bytes and (limits.samples is None or limits.strict):
            return False
        if limits.max_samples is not None and self._samples >= limits.max_samples:
            return False
        if limits.samples is not None:
            return self._samples < limits.samples
        is_busy = (
            queue.unfinished >= 2 * limits.max_running and queue.weight >= self._max_bytes_in_flight
        )
        return not is_busy and queue.unfinished < _MAX_QUEUED_JOBS

    def pop(
        self, *, alone: bool
    ) -> Generator[tuple[K, Work], None, tuple[B, Sequence[K], dict[K, BaseException]]]:
        """Remove the next block; yield jobs to wait for; return the block, its keys and the failed ones.

        The window is extended before each wait, unless `alone`: then nothing competes with this block.
        """
        block, keys = self._window.popleft()
        self._samples -= block.ids.size
        failed = {}
        for key in keys:
            job = self._jobs[key]
            if not job.done:
                self._max_bytes_in_flight = min(2 * self._max_bytes_in_flight, self._limits.bytes)
                while not (alone or job.done) and self._has_room() and self._pull():
                    pass
                yield key, job
            if job.error is not None:
                failed[key] = job.error
        return block, keys, failed

    def forget(self, keys: Sequence[K]) -> None:
        """Release the keys of a used block."""
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                self._drop(key)

    def _drop(self, key: K) -> None:
        del self._users[key], self._jobs[key]
        self._begun.discard(key)
        self._bytes -= self._reader.weight(key)
        self._reader.release(key)

    def close(self) -> None:
        """Stop the jobs and release all keys."""
        self._queue.stop()
        self._forget_earlier_jobs()
        for key in list(self._jobs):
            self._drop(key)
