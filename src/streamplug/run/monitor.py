"""Statistics, callbacks and the progress line of a data set, fed by its observer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from streamplug.display import FetchProgress, interactive
from streamplug.errors import ConfigError
from streamplug.interfaces import Callback, EpochEnded, EpochStarted, Stats
from streamplug.plugin import make
from streamplug.run.feed import Block
from streamplug.transfer import CAUSES, Counters, LoopClock, Observer
from streamplug.types import World

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

    @contextmanager
    def count_yielded(self, block: Block) -> Iterator[None]:
        """Count the batches and samples that are yielded from a block."""
        pid = os.getpid()
        self.stats.live.add(block)
        try:
            yield
        finally:
            if pid == os.getpid():
                self.stats.end_block(block)
            else:  # A forked process ends its copy of the loop, too, perhaps when it can import nothing more.
                self.stats.live.discard(block)

    @contextmanager
    def count_waits(self, clock: LoopClock) -> Iterator[None]:
        """Count the seconds that a clock counts inside the block."""
        pid = os.getpid()
        self.stats.clocks.add(clock)
        try:
            yield
        finally:
            has_os = os is not None  # see `loop`
            if has_os and pid == os.getpid():
                self.stats.end_clock(clock)
            else:
                self.stats.clocks.discard(clock)

    @contextmanager
    def loop(
        self,
        epoch: int,
        step: int,
        process: World,
        fetches: bool,
    ) -> Iterator[None]:
        """Emit the start and the end of an epoch, and show progress; see `progress_line`."""
        pid, complete = os.getpid(), False
        self.observer.process = process
        self.observer.emit(EpochStarted(epoch, step))
        try:
            with self.progress_line(process, fetches):
                yield
            complete = True
        finally:
            # Python 3.10 closes generators after it has cleared modules, when a program ends.
            has_os = os is not None
            if has_os and pid == os.getpid():
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
