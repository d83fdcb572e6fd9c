"""Statistics, callbacks and the progress line of a data set, fed by its observer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from streamplug.display import FetchProgress, interactive
from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, EpochEnded, EpochStarted, Stats
from streamplug.plugin import make
from streamplug.run.feed import Block
from streamplug.transfer import CAUSES, Counters, LoopClock, Observer
from streamplug.types import World

T = TypeVar("T")
_WAIT_NAMES = tuple(f"{cause}_wait_seconds" for cause in CAUSES)


class RankTotals:
    """Statistics of a rank: its counters, what was yielded of blocks that are not used up, and its clocks.

    Callbacks keep it, so it refers to neither files nor the data set. A pickled copy starts at zero.
    """

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.live: set[Block] = set()
        self.clocks: set[LoopClock] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return RankTotals, (self.counters,)

    def __call__(self) -> Stats:
        """Return the totals so far."""
        with self.counters.lock():  # else a block that ends meanwhile may not be counted
            counts = [block.yielded() for block in list(self.live)]
            batches, samples = map(sum, zip((0, 0), *counts))
            waits = map(sum, zip(*(clock.seconds for clock in list(self.clocks))))
            return self.counters.totals(
                batches=batches, samples=samples, **dict(zip(_WAIT_NAMES, waits))
            )

    def end_block(self, block: Block) -> None:
        """Forget a block, and count what was yielded of it."""
        with self.counters.lock():
            self.live.discard(block)
            batches, samples = block.yielded()
            self.counters.add(batches=batches, samples=samples)

    def end_clock(self, clock: LoopClock) -> None:
        """Forget a clock, and count what it has."""
        with self.counters.lock():
            self.clocks.discard(clock)
            self.counters.add(**dict(zip(_WAIT_NAMES, clock.seconds)))


class Monitor:
    """Statistics, callbacks and progress of the loops over a data set."""

    def __init__(self, observer: Observer, progress_bar: bool | None) -> None:
        if progress_bar not in (None, True, False):
            raise ConfigError(f"progress_bar={progress_bar!r}: expected None, True or False")
        self.observer = observer
        self._progress_bar = progress_bar
        self._home = os.getpid()
        self.stats = RankTotals(observer.counters)

    def silence(self) -> None:
        """Call no callbacks from now on, and show no progress."""
        self.observer.drop_callbacks()
        self._progress_bar = False

    def count_yielded(self, block: Block) -> AbstractContextManager[None]:
        """Count the batches and samples that are yielded from a block."""
        return _counted(block, self.stats.live, self.stats.end_block)

    def count_waits(self, clock: LoopClock) -> AbstractContextManager[None]:
        """Count the seconds that a clock counts inside the block."""
        return _counted(clock, self.stats.clocks, self.stats.end_clock)

    @contextmanager
    def loop(
        self,
        epoch: int,
        step: int,
        process: World,
        fetches: bool,
    ) -> Iterator[None]:
        """Emit the start and the end of an epoch, and show progress; see `progress_line`."""
        is_here, complete = _make_process_check(), False
        self.observer.process = process
        self.observer.emit(EpochStarted(epoch, step))
        try:
            with self.progress_line(process, fetches):
                yield
            complete = True
        finally:
            if is_here():
                self.observer.emit(EpochEnded(epoch, complete))

    @contextmanager
    def progress_line(self, process: World, fetches: bool) -> Iterator[None]:
        """Show download progress inside the block, on rank 0 in the process that made the data set."""
        is_shown = interactive() if self._progress_bar is None else self._progress_bar
        if not (is_shown and fetches and process.rank == 0 and os.getpid() == self._home):
            yield
            return
        progress = FetchProgress(self.observer.counters.totals)
        try:
            yield
        finally:
            if self._home == os.getpid():  # a forked process lacks the progress thread
                progress.close()


@contextmanager
def _counted(thing: T, things: set[T], end: Callable[[T], object]) -> Iterator[None]:
    """Keep a thing in a set during the block; then `end` it, or discard it in a forked process.

    That ends its copy of the loop, too, perhaps when it can import nothing more.
    """
    is_here = _make_process_check()
    things.add(thing)
    try:
        yield
    finally:
        if is_here():
            end(thing)
        else:
            things.discard(thing)


def _make_process_check() -> Callable[[], bool]:
    """Return a function that returns whether it runs in this process, which has not cleared modules.

    Python 3.10 closes generators after that, when a program ends.
    """
    pid = os.getpid()

    def is_here() -> bool:
        has_os = os is not None
        return has_os and pid == os.getpid()

    return is_here


def resolve_callbacks(callbacks: Sequence[Callback | str]) -> list[Callback]:
    """Return callback objects for objects and names of plugins."""
    if isinstance(callbacks, (str, Callback, Mapping)) or not isinstance(callbacks, Iterable):
        raise ConfigError(
            f"callbacks={callbacks!r:.100}: expected a list of callbacks, or of names of plugins' callbacks"
        )
    resolved = [make("callback", c) if isinstance(c, str) else c for c in callbacks]
    for callback in resolved:
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks: {callback!r} is no Callback, nor the name of one")
    return resolved
