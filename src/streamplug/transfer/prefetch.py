"""Prefetching of the data that the next blocks need."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from streamplug.transfer.decode_pool import DecodePool
from streamplug.transfer.pool import ThreadPool

T = TypeVar("T")
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)

_BLOCKS = 8
"""Maximum number of blocks added per `fill`, which must not delay the consumer; starts at 1."""


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """Limits of the prefetch window; None is unlimited."""

    samples: int | None = None  # samples after the current block; None adapts to the throughput
    bytes: int = 512 << 20  # size of the window, if it adapts or is strict
    strict: bool = False  # whether `bytes` also limits a fixed number of samples
    active: int = 8  # concurrent jobs
    most: int | None = None  # samples after the current block, exceeded by less than a block
    busy: int = 32 << 20  # bytes in flight; doubled, up to `bytes`, when the consumer waits
    queued: int = 512  # jobs in flight


class BlockRequirements(Generic[T, K]):
    """Functions that return what blocks need, and provide it; a key is one requirement, such as a shard.

    Attributes:
        of: Returns the keys of a block, the most urgent first.
        bytes: Returns the weight of a key in bytes.
        claim: Called when a key is first needed, before it is queued.
        samples: Returns the number of samples of a block.
        ensure: Makes a key ready; called on several threads at once.
        release: Called when no block in the window needs a key any more.
        split: Splits a block into parts that can be used one by one.
        waiting: Context manager entered while the consumer waits for a key.
    """

    def __init__(
        self,
        *,
        of: Callable[[T], Sequence[K]],
        samples: Callable[[T], int],
        ensure: Callable[[K], object],
        bytes: Callable[[K], int] = lambda _: 0,  # noqa: A002
        claim: Callable[[K], object] = lambda _: None,
        release: Callable[[K], object] = lambda _: None,
        split: Callable[[T], Sequence[T]] = lambda block: [block],
        waiting: Callable[[K], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        self.of, self.samples, self.bytes = of, samples, bytes
        self.ensure, self.claim, self.release = ensure, claim, release
        self.split, self.waiting = split, waiting


def prefetch_blocks(
    blocks: Iterable[T],
    needs: BlockRequirements[T, K],
    use: Callable[[T], Iterable[V]],
    limits: PrefetchLimits | None = None,
    *,
    threads: int = 0,
) -> Generator[V, None, None]:
    """Use blocks in order as their requirements become ready, while prefetching those of later blocks.

    `use` returns the values of a block; if a requirement failed, it is called for the parts before it. Up to
    `threads` other threads run `use` if it takes long enough; with 0, only this thread does.

    Raises:
        StreamplugError: The error of `ensure`, at the first part of a block that needs the failed key.
    """
    limits = limits or PrefetchLimits()
    window = PrefetchWindow(iter(blocks), needs, limits, ThreadPool(limits.active))
    makers: DecodePool[T, V, Sequence[K]] = DecodePool(use, threads)
    begun = False
    try:
        while window.look() or makers:
            if makers and (makers.busy or not window.ready()):
                window.forget((yield from makers.next()))
                continue
            block, wanted, failed = _waited(window.pop(alone=not begun))
            if begun:
                window.fill()
            if begun and makers.worthwhile and not failed:
                makers.add(block, wanted)
                continue
            while makers:
                window.forget((yield from makers.next()))
            for part in _until_failure(block, needs, failed) if failed else (block,):
                for value in makers.here(part):
                    if not begun:  # so that prefetching does not delay the first sample
                        begun = True
                        window.fill()
                    yield value
            window.forget(wanted)
    finally:
        try:
            makers.stop()
        finally:
            window.close()


def _until_failure(
    block: T, needs: BlockRequirements[T, K], failed: dict[K, BaseException]
) -> Generator[T, None, None]:
    for part in needs.split(block):
        for key in needs.of(part):
            if key in failed:
                raise failed[key]
        yield part


def _waited(steps: Generator[Work, None, V]) -> V:
    """Wait for each job that a generator yields; return its value."""
    try:
        while True:
            next(steps).wait()
    except StopIteration as end:
        found: V = end.value
        return found
    finally:
        steps.close()


class Work(Protocol):
    """A job in progress; see `Job`."""

    error: BaseException | None

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> None:
        """Wait until it has ended."""


class JobQueue(Protocol):
    """A queue of jobs; see `ThreadPool`."""

    unfinished: int
    weight: int

    def submit(self, work: Callable[[], object], weight: int = 0) -> Work:
        """Queue a job that weighs `weight` bytes."""

    def stop(self) -> None:
        """Drop all jobs that have not ended."""


class PrefetchWindow(Generic[T, K]):
    """The blocks ahead of the consumer, and the jobs in flight for them.

    It neither waits nor reads a clock, so that a simulation can drive it.
    """

    def __init__(
        self,
        blocks: Iterator[T],
        needs: BlockRequirements[T, K],
        limits: PrefetchLimits,
        workers: JobQueue,
    ) -> None:
        self._blocks, self._needs, self._limits = blocks, needs, limits
        self._ahead: deque[tuple[T, Sequence[K]]] = deque()
        self._jobs: dict[K, Work] = {}
        self._users: Counter[K] = Counter()
        self._samples = self._bytes = 0
        self._busy, self._most = limits.busy, 1
        self._workers = workers

    def look(self) -> bool:
        """Return whether there is a next block, pulling it if necessary."""
        return bool(self._ahead) or self._look_further()

    def ready(self) -> bool:
        """Return whether there is a next block whose requirements are all ready."""
        return self.look() and all(self._jobs[key].done for key in self._ahead[0][1])

    def fill(self) -> None:
        """Extend the window up to its limits, a few blocks at a time."""
        most = self._most if self._limits.samples is None else sys.maxsize
        self._most = min(2 * self._most, _BLOCKS)
        while most > 0 and self._short() and self._look_further():
            most -= 1

    def _look_further(self) -> bool:
        """Add the next block to the window; return False at the end."""
        block = next(self._blocks, None)
        if block is not None:
            self._append(block)
        return block is not None

    def _short(self) -> bool:
        """Return whether the window is below its limits."""
        limits, workers = self._limits, self._workers
        if self._bytes >= limits.bytes and (limits.samples is None or limits.strict):
            return False
        if limits.most is not None and self._samples >= limits.most:
            return False
        if limits.samples is not None:
            return self._samples < limits.samples
        enough = workers.unfinished >= 2 * limits.active and workers.weight >= self._busy
        return not enough and workers.unfinished < limits.queued

    def _append(self, block: T) -> None:
        wanted = self._needs.of(block)
        for key in wanted:
            self._users[key] += 1
            if key not in self._jobs:
                weight = self._needs.bytes(key)
                self._bytes += weight
                self._needs.claim(key)
                self._jobs[key] = self._workers.submit(partial(self._needs.ensure, key), weight)
        self._ahead.append((block, wanted))
        self._samples += self._needs.samples(block)

    def pop(
        self, *, alone: bool
    ) -> Generator[Work, None, tuple[T, Sequence[K], dict[K, BaseException]]]:
        """Remove the next block; yield jobs to wait for; return the block, its keys and the failed ones.

        The window is extended before each wait, unless `alone`: then nothing competes with this block.
        """
        block, wanted = self._ahead.popleft()
        self._samples -= self._needs.samples(block)
        failed = {}
        for key in wanted:
            job = self._jobs[key]
            if not job.done:
                self._busy = min(2 * self._busy, self._limits.bytes)
                with self._needs.waiting(key):
                    while not (alone or job.done) and self._short() and self._look_further():
                        pass
                    yield job
            if job.error is not None:
                failed[key] = job.error
        return block, wanted, failed

    def forget(self, wanted: Sequence[K]) -> None:
        """Release the keys of a used block."""
        for key in wanted:
            self._users[key] -= 1
            if not self._users[key]:
                self._drop(key)

    def _drop(self, key: K) -> None:
        del self._users[key], self._jobs[key]
        self._bytes -= self._needs.bytes(key)
        self._needs.release(key)

    def close(self) -> None:
        """Stop the jobs and release all keys."""
        self._workers.stop()
        for key in list(self._jobs):
            self._drop(key)
