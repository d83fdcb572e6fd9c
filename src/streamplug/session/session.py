"""One rank's reading of opened streams: the samples, their order, and where the reading stands."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar

from streamplug.read import SampleReader
from streamplug.session.epoch_counter import CELLS, EpochCounter
from streamplug.session.monitor import Monitor
from streamplug.session.open_stream import OpenStream
from streamplug.session.placement import Placement
from streamplug.session.sample_source import Block, SampleSource, plan_blocks
from streamplug.session.training_run import TrainingRun
from streamplug.transfer import observer
from streamplug.types import Int64, World

T = TypeVar("T")

SHARED_CELLS = CELLS + observer.CELLS
"""Number of int64 in which a session counts, see `Session.count_in`."""


class Session:
    """One rank's reading of opened streams; what adapters and other distributions build on.

    Attributes:
        streams: The opened streams.
        reader: Reads samples by their ids, in any order.
        source: Reads blocks of samples, fetching ahead.
        run: The order of the epochs, and how far it was read.
        monitor: Counts what happens and calls the callbacks.
        placement: Finds out where this process stands.
        size: Number of samples of all streams.
    """

    def __init__(
        self,
        streams: Sequence[OpenStream],
        source: SampleSource,
        run: TrainingRun,
        monitor: Monitor,
        placement: Placement,
    ) -> None:
        self.streams, self.source, self.run = streams, source, run
        self.monitor, self.placement = monitor, placement
        self.reader: SampleReader = source.reader
        self.size = int(source.reader.starts[-1])

    # -- reading ----------------------------------------------------------------------

    def read_epoch(
        self, read: Callable[[Block], T], rows: int, num_threads: int = 0
    ) -> Generator[tuple[int, Block, T], None, None]:
        """Yield this worker's blocks of the next epoch, and what `read` returns for each.

        Whoever iterates calls `run.moved_to` before it hands out the last sample of a step, and closes
        the generator.

        Args:
            read: Reads the samples of a block.
            rows: About how many samples to a block.
            num_threads: Blocks that are read at once, ahead of use; 0 reads each when it is asked for.

        Yields:
            Epoch, block, and the samples.
        """
        epoch, first, blocks = self.begin_blocks(rows)
        place = self.placement.worker()
        parts = self.source.parts(
            blocks, read, place, self.monitor.observer, num_threads=num_threads
        )
        with self.monitor.loop(epoch, first, place, self.source.remote), closing(parts):
            for part, values in parts:
                with self.monitor.giving(part):
                    yield epoch, part, values
            self.run.moved_to(epoch + 1, 0)

    def begin_blocks(self, rows: int) -> tuple[int, int, Generator[Block, None, None]]:
        """Begin an epoch; return it, its first step, and this worker's blocks of about so many samples."""
        epoch, first = self.begin_epoch()
        world = self.placement.plan_worker()
        blocks = plan_blocks(self.run.epoch(epoch, world), world, self.run.batch, first, rows)
        return epoch, first, blocks

    def begin_epoch(self) -> tuple[int, int]:
        """Begin an epoch; return its number and first step."""
        return self.run.begin(self.placement.worker_loop())

    # -- where it stands -----------------------------------------------------------------

    @property
    def world(self) -> World:
        """This rank's place in the world that the order is planned for."""
        return self.placement.plan_rank()

    @property
    def place(self) -> World:
        """`world` with this process's place among the rank's loader workers."""
        return self.placement.plan_worker()

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; without a batch size every sample is a batch."""
        return self.run.batch

    def current_epoch(self) -> tuple[int, int]:
        """Return the epoch that was begun last, and the step it began with."""
        return self.run.clock.current()

    def state_at(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step."""
        return self.run.state_at(self.world, epoch, step)

    def next_state(self) -> dict[str, Any]:
        """Return the state before the next epoch."""
        return self.run.next_state(self.world)

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            StateError: If it was saved by a run whose order differs from this one's.
        """
        self.run.load(saved, self.world)

    # -- counting in several processes ---------------------------------------------------

    def share_counters(self, cells: Int64) -> None:
        """Go on counting in memory that other processes share.

        Args:
            cells: Zeros, shape ``[SHARED_CELLS]``.
        """
        cells[CELLS:] = self.monitor.observer.counters.cells
        self.count_in(cells, None, os.getpid())

    def count_in(self, cells: Int64, sets: int | None, home: int) -> None:
        """Count epochs, and what happens, in shared memory.

        Args:
            cells: Shape ``[SHARED_CELLS]``.
            sets: As for `EpochCounter`.
            home: Id of the process that all counts are for.
        """
        self.run.clock = EpochCounter(cells[:CELLS], sets)
        self.monitor.observer.counters.use(cells[CELLS:], home)
