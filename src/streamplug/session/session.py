"""A rank's reading of opened streams: samples, order, position and statistics."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from threading import get_ident
from typing import Any, TypeVar

from streamplug.errors import ConfigError
from streamplug.read import SampleReader
from streamplug.session.epoch_counter import CELLS, EpochCounter
from streamplug.session.monitor import Monitor
from streamplug.session.open_stream import OpenStream
from streamplug.session.placement import Placement
from streamplug.session.sample_source import Block, SampleSource, plan_blocks
from streamplug.session.substitution import Substitution, SubstitutionOptions
from streamplug.session.training_run import RESIZE_ERROR, TrainingRun
from streamplug.session.world_change import (
    WorldChange,
    check_workers,
    rewind_position,
)
from streamplug.transfer import observer
from streamplug.types import Int64, World

T = TypeVar("T")

SHARED_CELLS = CELLS + observer.CELLS
"""Number of int64 counters of a session, see `Session.count_in`."""


class Session:
    """A rank's reading of opened streams, on which adapters and other distributions build."""

    def __init__(
        self,
        streams: Sequence[OpenStream],
        source: SampleSource,
        run: TrainingRun,
        monitor: Monitor,
        placement: Placement,
        *,
        substitution: SubstitutionOptions,
    ) -> None:
        self.substitution_options = substitution
        self.streams, self.source, self.run = streams, source, run
        self.monitor, self.placement = monitor, placement
        self.reader: SampleReader = source.reader
        self.size = int(source.reader.starts[-1])
        self._block_logs: dict[int, deque[tuple[int, Block]]] = {}  # by thread
        self._substitution: Substitution | None = None  # the latest

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_substitution": None, "_block_logs": {}}

    def read_epoch(
        self, read: Callable[[Block], T], rows: int, num_threads: int = 0
    ) -> Generator[tuple[int, Block, T], None, None]:
        """Yield epoch, block and result of `read` for this worker's blocks of the next epoch.

        The caller calls `run.set_position` with the block before it yields the last sample of a step, and
        closes the generator. Blocks have about `rows` samples; `num_threads` of them are read ahead of use in
        parallel.
        After a change of the world, the generator goes on with the next step; that of a worker ends.
        """
        log = self._block_logs.pop(get_ident(), None)
        # A subclass may read ahead in another thread.
        if log is None and len(self._block_logs) == 1:
            log = self._block_logs.popitem()[1]
        epoch, first, blocks = self.begin_blocks(rows)
        process = self.placement.worker()
        with self.monitor.loop(
            epoch, first, process, self.source.remote, lambda: self.run.world_change() is not None
        ):
            while True:
                events, sets = self.run.clock.events, self.run.clock.sets
                yield from self._read_blocks(epoch, blocks, read, num_threads, log)
                change = self.run.world_change()
                if not self.run.in_worker and self.run.clock.events != events:
                    self.run.check_sets(sets)
                    if change is None or change.epoch != epoch:  # it is that of another loop
                        raise ConfigError(RESIZE_ERROR)
                if change is None:
                    self.end_epoch(epoch)
                if change is None or self.run.in_worker:
                    return
                self.run.resume_loop(change)
                _, _, blocks = self.begin_blocks(rows)

    def _read_blocks(
        self,
        epoch: int,
        blocks: Iterator[Block],
        read: Callable[[Block], T],
        num_threads: int,
        log: deque[tuple[int, Block]] | None,
    ) -> Generator[tuple[int, Block, T], None, None]:
        run = self.run
        events, sets = run.clock.events, None if run.in_worker else run.clock.sets
        parts = self.source.parts(
            blocks,
            read,
            self.placement.worker(),
            self.monitor.observer,
            num_threads=num_threads,
            substitution=self.make_substitution(epoch),
        )
        with closing(parts):
            for part, values in parts:
                if log is not None:
                    log.append((epoch, part))
                part.sets = sets
                with self.monitor.count_yielded(epoch, part):
                    yield epoch, part, values
                if run.world_change() is not None:
                    return
                if not run.in_worker and run.clock.events != events:
                    return

    def record_blocks(self) -> deque[tuple[int, Block]]:
        """Return a queue for epoch and block of what the next `read_epoch` of this thread yields.

        They are appended before they are yielded.
        """
        self._block_logs[get_ident()] = log = deque[tuple[int, Block]]()
        return log

    def begin_blocks(self, rows: int) -> tuple[int, int, Generator[Block, None, None]]:
        """Start an epoch; return it, its first step, and this worker's blocks of about `rows` samples."""
        epoch, first = self.begin_epoch()
        world = self.placement.plan_worker()
        plan, batch = self.run.epoch(epoch, world), self.run.batch
        blocks = plan_blocks(plan, world, batch, first, rows, size=self.size)
        return epoch, first, blocks

    def make_substitution(self, epoch: int) -> Substitution | None:
        """Return what substitutes samples of an epoch that was started; None if errors are raised."""
        if not self.substitution_options.enabled:
            return None
        if self._substitution is None or not self._substitution.is_of(epoch):
            self._substitution = Substitution(self, epoch)
        return self._substitution

    def latest_substitution(self) -> Substitution | None:
        """Return what substitutes samples of the current loop; None if errors are raised."""
        return self.make_substitution(self.run.loop_epoch)

    def begin_epoch(self) -> tuple[int, int]:
        """Start an epoch; return its number and first step."""
        self.own_counters()
        change = self.run.latest_change()
        self.placement.start_loop()
        loop = self.placement.worker_loop()
        self.placement.begun = 0  # a second epoch of the same loop is the next one
        position = self.run.start_epoch(loop, change)
        if change is not None:
            self._follow(change)
        return position

    def end_epoch(self, epoch: int) -> None:
        """Set the position after an epoch; see `position_after`."""
        self.run.set_position(*self.position_after(epoch))

    def position_after(self, epoch: int) -> tuple[int, int]:
        """Return the position after an epoch; that of another loop if one was started before it ended."""
        run = self.run
        if epoch == run.loop_epoch:
            return epoch + 1, 0
        return self.monitor.position(run.loop_epoch, run.clock.sets) or run.clock.next()

    def resize(self, world: World, rewind: int, position: tuple[int, int] | None = None) -> None:
        """Go on in another world; see `StreamingDataset.resize`.

        `position` is the epoch and the step of the training loop; None for those of the loop in this process.
        """
        self.own_counters()
        run = self.run
        check_workers(world, self.placement.rank())
        if not run.options.elastic:
            raise ConfigError(
                f"resize() with partition_algo={run.options.partition_algo!r}, whose order depends on the "
                "number of ranks; begin the run with partition_algo='elastic'"
            )
        if position is None:
            position = run.loop_position()
            if position is not None and run.world_change() is None:
                self.monitor.check_between(*position, run.clock.sets)
        epoch, step = rewind_position(
            position, rewind, len(run.steps_of_global_batch(0, self.world))
        )
        in_loop, first = epoch >= 0, run.clock.next()[1]
        by_hand = run.count_changes_by_hand(self.world, epoch, step) if in_loop else 0
        # Steps are counted in the world, also that with which a loaded state begins.
        batch, step = run.resized(
            self.world, self.placement.merge_replicas(world), step if in_loop else first
        )
        change = WorldChange(
            run.clock.changes + 1,
            world.nodes,
            world.ranks_per_node,
            world.rank,
            batch,
            epoch,
            step,
            by_hand,
        )
        self._follow(change)
        run.clock.change_world(change)
        self.monitor.cut_blocks()
        if in_loop:
            run.set_loader_position(epoch, step)
        elif step != first:
            run.set_first_step(step)

    def _follow(self, change: WorldChange) -> None:
        self.run.change_world(change.batch_size, self.world)
        self.placement.change_world(change)
        self.monitor.observer.process = self.placement.worker()
        if change.epoch >= 0:  # else proportions may have been set since
            self.run.keep_changes_by_hand(change.changes_by_hand)

    @property
    def world(self) -> World:
        """This rank's place in the world that the order is planned for."""
        return self.placement.plan_rank()

    @property
    def process(self) -> World:
        """`world` with this process's worker number."""
        return self.placement.plan_worker()

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; 1 without a batch size."""
        return self.run.batch

    def current_epoch(self) -> tuple[int, int]:
        """Return the epoch that was started last, or else the next, and its first step."""
        return self.run.clock.current()

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step."""
        return self.run.state_at(self.world, epoch, step)

    def next_state(self) -> dict[str, Any]:
        """Return the state before the next epoch."""
        return self.run.next_state(self.world)

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        self.own_counters()
        self.run.load(saved, self.world)

    def share_counters(self) -> None:
        """Move the counters to memory that loader workers will share, if there are any."""
        cells = self.placement.start_counting(SHARED_CELLS)
        if cells is not None:
            cells[CELLS:] = self.monitor.observer.counters.cells
            self.count_in(cells, None, os.getpid())

    def own_counters(self) -> None:
        """Let a rank count for itself that its launcher gave the data set to."""
        if self.monitor.observer.counters.home == os.getpid():
            return
        if self.placement.worker_loop().ticket or not self.placement.is_other_rank():
            return
        cells = self.placement.start_counting(SHARED_CELLS)
        if cells is not None:
            position = *self.run.clock.next(), self.run.clock.version
            self.count_in(cells, None, os.getpid())
            self.run.clock.set(*position)

    def set_proportions(self, proportions: Sequence[float]) -> None:
        """Set the proportions of the streams from the current step on."""
        self.own_counters()
        self.run.set_proportions(proportions, self.world)

    def follow_trainer(self, epoch: int) -> None:
        """Follow the number of an epoch of a trainer; see `StreamingDataset.set_epoch`."""
        self.own_counters()
        self.run.follow_trainer(epoch, self.world)

    def count_in(self, cells: Int64, sets: int | None, home: int) -> None:
        """Count epochs and events in shared memory for the process with id `home`.

        `cells` has shape ``[SHARED_CELLS]``; `sets` is as for `EpochCounter`.
        """
        self.run.clock = EpochCounter(cells[:CELLS], sets)
        self.monitor.observer.counters.use(cells[CELLS:], home)
