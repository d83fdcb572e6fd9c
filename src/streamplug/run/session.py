"""A data set at work on one rank: its reader, run, world and statistics; saves and loads its state."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from threading import get_ident
from typing import Any

from streamplug.errors import ConfigError, DataError
from streamplug.plan import Position, state
from streamplug.read import SampleReader
from streamplug.run import shared_epoch
from streamplug.run.exit import closed_at_exit
from streamplug.run.feed import Block, Feed, plan_blocks
from streamplug.run.loop import Loop, Part
from streamplug.run.monitor import Monitor
from streamplug.run.placement import Placement, check_workers
from streamplug.run.run import Run, RunSnapshot
from streamplug.run.shared_epoch import SharedEpoch
from streamplug.run.substitution import Substitution, SubstitutionOptions
from streamplug.source import OpenSources
from streamplug.transfer import COUNTER_CELLS, DECODE, Handover, LoopClock
from streamplug.types import Int64, World

_LOG = logging.getLogger("streamplug")
_MAX_SUBSTITUTIONS = 16
"""Loops side by side whose samples that failed are remembered."""

SHARED_CELLS = shared_epoch.CELLS + COUNTER_CELLS
"""Number of int64 cells that the processes of a session share, see `Session.count_in`."""


class Session:
    """A rank's reading of opened streams, on which adapters and other distributions build."""

    def __init__(
        self,
        streams: OpenSources,
        feed: Feed,
        run: Run,
        monitor: Monitor,
        placement: Placement,
        *,
        substitution: SubstitutionOptions,
    ) -> None:
        self.substitution_options = substitution
        self.streams, self.feed, self.run = streams, feed, run
        self.monitor, self.placement = monitor, placement
        self.reader: SampleReader = feed.reader
        self.size = int(feed.reader.starts[-1])
        # What the next `read` is for, and whether another thread may start it, by the thread that was told.
        self._told: dict[int, tuple[Part, bool]] = {}
        self.part: Part | None = None  # what the latest one is for, to name samples in errors
        self._substitutions: dict[
            tuple[int, int], Substitution
        ] = {}  # by epoch and number of the loop
        self._handover = Handover()
        self._is_checked = False  # whether the order is that of the other ranks
        # Errors by samples that no other copy can mend, which substitution does not try again.
        self.bad_samples: dict[int, DataError] = {}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self._handover = Handover()

    def __getstate__(self) -> dict[str, Any]:
        own: dict[str, Any] = {"_substitutions": {}, "_told": {}, "part": None, "_handover": None}
        return self.__dict__ | own | {"_is_checked": False}  # a copy may be another rank's

    # -- reading ---------------------------------------------------------------------

    def begin(self) -> Loop:
        """Start a loop over the next epoch, or over the rest of that of a state."""
        self.own_counters()
        self.placement.start_loop()
        self._check_ranks()
        return self.run.begin(self.placement.worker_loop(), self.world)

    def _check_ranks(self) -> None:
        """Refuse another order than that of the rank that began first, and warn about another position.

        Samples would come twice, or never.
        """
        if self._is_checked or self.world.ranks == 1:
            return
        identity, rank = self.run.identity(self.world), self.world.rank
        own, start = identity.to_state(), self.run.describe(self.run.next())
        text = self.placement.first_value(f"order/{identity.shards}", json.dumps([own, start]))
        first, first_start = json.loads(text)
        differences = state.describe_differences(first, identity, own)
        if differences:
            raise ConfigError(
                f"rank {rank} would read this data set in another order than the rank that began first, "
                f"whose values are called saved here: {differences}; give all ranks the same options"
            )
        if first_start != start:  # no error: a rank may have looked at data before all load a state
            _LOG.warning(
                "rank %d begins to read at %s, but the rank that began first at %s: load the same state on "
                "all ranks, or samples come twice, or never",
                *(rank, start, first_start),
            )
        self._is_checked = True

    @contextmanager
    def telling(self, part: Part, *, by_any_thread: bool = False) -> Generator[None, None, None]:
        """Let the first `read` inside the block be for a part; the others start loops of their own.

        It is the first one of this thread, or of any one if code of others is called that may read ahead.
        """
        thread, told = get_ident(), (part, by_any_thread)
        self._told[thread] = told
        try:
            yield
        finally:
            if self._told.get(thread) is told:
                del self._told[thread]

    def _take_told(self) -> Part | None:
        thread, told = get_ident(), self._told.copy()
        if thread not in told:
            threads = [other for other, (_, by_any_thread) in told.items() if by_any_thread]
            if len(threads) != 1:  # else nobody knows which it is
                return None
            thread = threads[0]
        taken = self._told.pop(thread, None)
        if taken is None:
            return None
        part, _ = taken
        if thread != get_ident():  # that thread uses the other one while it waits for this one
            part.clock = LoopClock()
        return part

    @closed_at_exit
    def read(
        self,
        read: Callable[[Block], Any],
        rows: int,
        num_threads: int = 0,
        finish: Callable[[Block, Any], Any] | None = None,
    ) -> Generator[tuple[Part, Block, Any], None, None]:
        """Yield blocks of this worker and the results of `read`, for the part that was told, or a new loop.

        The caller takes the steps of a block from `Part.steps`, calls `Part.advance` before it yields the
        last sample of each, and closes the generator. Blocks have about `rows` samples; `num_threads` of them
        are read ahead of use in parallel. With `finish`, the results are what it makes of a block and its
        values, on the thread that read them. After a change of the run, the generator goes on at the next
        step.
        """
        part = self._take_told()
        if part is not None:
            yield from self._read(part, read, rows, num_threads, finish)
            return
        with self.looping(self.begin()) as loop:
            yield from self._read(loop, read, rows, num_threads, finish)

    def skip(self) -> Part:
        """Return the part that was told, or else a loop, which ends, without reading anything of it."""
        part = self._take_told()
        if part is None:
            part = self.begin()
            part.end()
        return part

    def leave(self, read: Generator[Any, None, None]) -> None:
        """Close what reads for a loop that goes on elsewhere: downloads go on that this may need."""
        self._handover.leave(read)

    @contextmanager
    def looping(self, loop: Loop) -> Generator[Loop, None, None]:
        """Close a loop at the end of the block; it was not started if that fails before the first batch."""
        try:
            with self.monitor.count_waits(loop.clock):
                yield loop
        except GeneratorExit:
            raise
        except BaseException:
            loop.undo()
            raise
        finally:
            loop.close()
            self._handover.close()

    def _read(
        self,
        part: Part,
        read: Callable[[Block], Any],
        rows: int,
        num_threads: int,
        finish: Callable[[Block, Any], Any] | None,
    ) -> Generator[tuple[Part, Block, Any], None, None]:
        self.part, clock = part, part.clock
        with self.monitoring(part):
            while True:
                clock.enter(DECODE)
                parts = self.feed.parts(
                    self.plan_blocks(part, rows),
                    read,
                    self.placement.worker(),
                    self.monitor.observer,
                    num_threads=num_threads,
                    clock=clock,
                    finish=finish,
                    substitution=self.make_substitution(part),
                    handover=self._handover,
                )
                with closing(parts):
                    for block, values in parts:
                        clock.leave()
                        part.add(block)
                        with self.monitor.count_yielded(block):
                            yield part, block, values
                        self.part = part  # another loop may have read meanwhile
                        if part.is_outdated:
                            self.leave(parts)
                            break
                        clock.enter(DECODE)
                    else:
                        clock.leave()
                if part.is_complete or not part.follow():
                    part.end()
                    return

    @contextmanager
    def monitoring(self, part: Part, *, fetches: bool | None = None) -> Generator[None, None, None]:
        """Emit the start and the end of an epoch, and show progress; see `Monitor.loop`."""
        fetches = self.feed.remote if fetches is None else fetches
        step = self.step_of(part.start)
        with self.monitor.loop(part.epoch, step, self.placement.worker(), fetches):
            yield

    def plan_blocks(self, part: Part, rows: int) -> Generator[Block, None, None]:
        """Return this worker's blocks of about `rows` samples, from the start of a part on."""
        world, run = self.placement.plan_worker(), self.run
        run.warn(part.epoch, world)
        plan = run.epoch(part.epoch, world)
        first = plan.step_at(world, part.start.done)
        return plan_blocks(plan, world, first, rows, size=self.size)

    def substitution_of(self, epoch: int) -> Substitution | None:
        """Return what substitutes samples of an epoch in the latest loop; None if errors are raised."""
        number = 0 if self.part is None else self.part.number
        return self.make_substitution(Part(Position(epoch), number))

    def make_substitution(self, part: Part) -> Substitution | None:
        """Return what substitutes samples of a loop; None if errors are raised."""
        if not self.substitution_options.enabled:
            return None
        key, known = (part.epoch, part.number), self._substitutions
        if key not in known:
            known[key] = Substitution(self, *key)
            while len(known) > _MAX_SUBSTITUTIONS:
                known.pop(next(iter(known)), None)
        return known[key]

    def describe(self, sample: int, epoch: int, step: int) -> str:
        """Return in words where a sample is stored, and when it is read."""
        url = self.streams[self.reader.locate(sample)[0]].stream.url
        where = self.reader.describe(sample)
        return f"sample {sample} ({url}, {where}; epoch {epoch}, step {step})"

    # -- world -----------------------------------------------------------------------

    def resize(
        self, world: World, rewind: int, batch_size: int | None, *, ignore_others: bool = False
    ) -> None:
        """Go on in another world; see `StreamingDataset.resize`, and `Run.position` for `ignore_others`."""
        self.own_counters()
        run, before = self.run, self.world
        check_workers(world, self.placement.rank())
        if not run.options.elastic:
            raise ConfigError(
                f"resize() with partition_algo={run.options.partition_algo!r}, whose order depends on the "
                "number of ranks; begin the run with partition_algo='elastic'"
            )
        position, loop = run.position(ignore_others=ignore_others), run.latest
        if loop is not None:
            position = loop.rewind(rewind)
        elif rewind:
            raise ConfigError(f"rewind={rewind}: no batch was read since the position was set")
        run.resize(position, before, self.placement.merge_replicas(world), batch_size)
        self.placement.change_world(world)
        self.monitor.observer.process = self.placement.worker()
        if loop is not None:
            loop.go_to(position, self.world)

    def snapshot(self) -> RunSnapshot:
        """Return what another process needs to read for a loop of this run."""
        return self.run.snapshot(self.placement.rank())

    def adopt(self, snapshot: RunSnapshot) -> None:
        """Read in this process as the run of a snapshot does."""
        self.run.adopt(snapshot)
        self.placement.change_world(snapshot.world)
        self.placement.start_loop()

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

    # -- position --------------------------------------------------------------------

    def step_of(self, position: Position) -> int:
        """Return the step at a position."""
        plan = self.run.epoch(position.epoch, self.world)
        return plan.step_at(self.world, position.done)

    def next_step(self) -> tuple[int, int]:
        """Return the epoch and the step with which the next loop begins."""
        position = self.run.next()
        return position.epoch, self.step_of(position)

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step."""
        done = self.run.epoch(epoch, self.world).done_before(self.world, step)
        return self.run.state_at(self.world, Position(epoch, done))

    def next_state(self) -> dict[str, Any]:
        """Return the state before the next loop."""
        return self.run.next_state(self.world)

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        self.own_counters()
        self.run.load(saved, self.world)

    def set_proportions(self, proportions: Sequence[float]) -> None:
        """Set the proportions of the streams from the current step on."""
        self.own_counters()
        self.run.set_proportions(proportions, self.world)

    def follow_trainer(self, epoch: int) -> None:
        """Follow the number of an epoch of a trainer; see `StreamingDataset.set_epoch`."""
        self.own_counters()
        self.run.follow_trainer(epoch, self.world)

    # -- counters --------------------------------------------------------------------

    def share_counters(self) -> None:
        """Move the counters to memory that loader workers will share, if there are any."""
        self._start_counting(self.monitor.observer.counters.cells)

    def own_counters(self) -> None:
        """Let a rank count for itself that its launcher gave the data set to."""
        if self.monitor.observer.counters.home == os.getpid():
            return
        if self.placement.worker_loop().ticket or not self.placement.is_other_rank():
            return
        self.run.restart()
        self._start_counting()

    def _start_counting(self, counts: Int64 | int = 0) -> None:
        cells = self.placement.start_counting(SHARED_CELLS)
        if cells is not None:
            cells[shared_epoch.CELLS :] = counts
            self.count_in(cells, None, os.getpid())

    def count_in(self, cells: Int64, sets: int | None, home: int) -> None:
        """Count loops and events in shared memory for the process with id `home`.

        `cells` has shape ``[SHARED_CELLS]``; `sets` is as for `SharedEpoch`, and None for new cells.
        """
        self.run.share(SharedEpoch(cells[: shared_epoch.CELLS], sets), is_new=sets is None)
        self.monitor.observer.counters.use(cells[shared_epoch.CELLS :], home)
