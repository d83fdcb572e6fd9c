"""Prefetching of what the next blocks need, in the background."""

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
"""Blocks looked at before one is handed out: that must not hold it up for long, the first least."""


@dataclass(frozen=True, slots=True)
class PrefetchLimits:
    """How far ahead to fetch.

    Attributes:
        samples: So many samples after the current block; None adapts to how fast things come.
        bytes: Bytes that may be wanted ahead of use when it adapts, or if they are `strict`.
        strict: Whether `bytes` bounds a given number of samples, too.
        active: Things to fetch at once.
        most: So many samples after the current block are never exceeded by more than a block; None for
            any number.
        busy: Bytes that must be on their way for the network not to wait; doubled, up to `bytes`,
            whenever the consumer had to wait.
        queued: Things that may be on their way.
    """

    samples: int | None = None
    bytes: int = 512 << 20
    strict: bool = False
    active: int = 8
    most: int | None = None
    busy: int = 32 << 20
    queued: int = 512


class BlockRequirements(Generic[T, K]):
    """What blocks need, and how to have it.

    Attributes:
        of: Returns what a block needs, the most urgent first.
        bytes: Returns how much one of these weighs.
        claim: Told when one begins to be needed, before anything else becomes ready.
        samples: Returns how many samples a block has.
        ensure: Makes one ready; called on several threads at once.
        release: Told when one is needed no more for now.
        split: Returns the parts of a block that can be handed out one by one.
        waiting: Entered while one is waited for.
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
    """Use blocks once what they need is ready, fetching for later blocks meanwhile.

    Args:
        blocks: Pieces of the plan, in the order of their use.
        needs: What they need.
        use: Makes of a block what is yielded; one for which something failed comes in parts, up to
            the one that needs that.
        limits: How far ahead to fetch.
        threads: How many blocks to use at once, on threads of their own where that is worth it; 0 for one,
            on this thread.

    Yields:
        What `use` makes of the blocks.

    Raises:
        StreamplugError: What `ensure` raised, at the part of a block that needs it first.
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
                    if not begun:  # only now, so that nothing competes with the very first one
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
    """Wait for all that a generator yields; returns what it returns."""
    try:
        while True:
            next(steps).wait()
    except StopIteration as end:
        found: V = end.value
        return found
    finally:
        steps.close()


class Work(Protocol):
    """Something that is done elsewhere; see `Job`."""

    error: BaseException | None

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def wait(self) -> None:
        """Wait until it has ended."""


class JobQueue(Protocol):
    """Who carries out what is needed; see `ThreadPool`."""

    unfinished: int
    weight: int

    def submit(self, work: Callable[[], object], weight: int = 0) -> Work:
        """Queue a job that weighs so many bytes."""

    def stop(self) -> None:
        """Drop all that has not ended."""


class PrefetchWindow(Generic[T, K]):
    """The blocks ahead of the consumer, and what is done for them.

    It neither waits nor looks at a clock, so that who has another clock can ask it what comes next.
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
        """Look at the next block, if that has not been done; returns whether there is one."""
        return bool(self._ahead) or self._look_further()

    def ready(self) -> bool:
        """Say whether there is a next block, and all that it needs."""
        return self.look() and all(self._jobs[key].done for key in self._ahead[0][1])

    def fill(self) -> None:
        """Look at as many of the blocks after the current one as it takes."""
        most = self._most if self._limits.samples is None else sys.maxsize
        self._most = min(2 * self._most, _BLOCKS)
        while most > 0 and self._short() and self._look_further():
            most -= 1

    def _look_further(self) -> bool:
        """Look at one more block; returns whether there was one."""
        block = next(self._blocks, None)
        if block is not None:
            self._append(block)
        return block is not None

    def _short(self) -> bool:
        """Say whether less is on its way than should be."""
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
        """Return the next block when its needs have been seen to, these, and what failed of them.

        Before anything is waited for it looks at more blocks, unless nothing is to compete with this one.

        Yields:
            What is to be waited for.
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
        """Take it that a block is used up."""
        for key in wanted:
            self._users[key] -= 1
            if not self._users[key]:
                self._drop(key)

    def _drop(self, key: K) -> None:
        del self._users[key], self._jobs[key]
        self._bytes -= self._needs.bytes(key)
        self._needs.release(key)

    def close(self) -> None:
        """Stop at once."""
        self._workers.stop()
        for key in list(self._jobs):
            self._drop(key)
