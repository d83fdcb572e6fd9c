"""Epoch of batches of limited cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Place
from streamplug.plan.partition import position_owner
from streamplug.types import Int64, World
from streamplug_budget.bin_order import BinOrder
from streamplug_budget.windows import EpochWindows, Window


class EpochPart:
    """Bins of an epoch, or of the part of it between two changes of proportions.

    The bins of all sequences take turns, so that a node reads those of its own canonical nodes.

    Attributes:
        windows: The windows.
        order: The order of the bins.
        size: Number of bins that are read.
    """

    def __init__(
        self, windows: EpochWindows, counts: Sequence[Int64], most: int | None = None
    ) -> None:
        """Order bins.

        Args:
            windows: The windows.
            counts: Number of bins of each window of each sequence.
            most: Number of bins after which proportions change; None to read all of them.
        """
        self.windows = windows
        # Number of the first bin of each window in its sequence, and the total.
        self._first_bins = [
            np.concatenate([np.zeros(1, np.int64), np.cumsum(of_sequence)])
            for of_sequence in counts
        ]
        self.order = BinOrder([int(firsts[-1]) for firsts in self._first_bins])
        self.size = self.order.size if most is None else min(self.order.size, most)

    def _window_of_bin(self, sequence: int, number: int) -> int:
        return int(np.searchsorted(self._first_bins[sequence], number, side="right")) - 1

    def _window(self, sequence: int, window: int) -> tuple[Window, int]:
        """Return a window, and the number of its first bin."""
        first, end = self._first_bins[sequence][window : window + 2].tolist()
        return self.windows.window(sequence, window, range(first, end)), first

    def bin(self, position: int) -> Int64:
        """Return the samples of a bin."""
        sequence, number = self.order.locate(position)
        window, first = self._window(sequence, self._window_of_bin(sequence, number))
        return window.bin(number - first)

    def progress(self) -> Iterator[tuple[int, int, Int64]]:
        """Yield each sequence, the end of the windows that are read, and positions before it that are not."""
        for sequence, read in enumerate(self.order.counts_before(self.size).tolist()):
            if not read:
                yield sequence, 0, np.empty(0, np.int64)
                continue
            number = self._window_of_bin(sequence, read - 1)
            window, first = self._window(sequence, number)
            positions = self.windows.positions(sequence, number)
            unread = window.offsets[window.bounds[read - first] :]
            yield sequence, positions.stop, np.sort(unread).astype(np.int64) + positions.start

    def locate(self, sample: int) -> Iterator[tuple[int, int]]:
        """Yield the position of each bin that has a sample, and the place of the sample in it."""
        for sequence, window, position in self.windows.locate(sample):
            first, end = self._first_bins[sequence][window : window + 2].tolist()
            if first == end or self.order.position(sequence, first) >= self.size:
                continue  # no bin of the window is read
            packed = self._window(sequence, window)[0]
            index = int(np.flatnonzero(packed.offsets == position)[0])
            number = int(np.searchsorted(packed.bounds, index, side="right")) - 1
            bin_position = self.order.position(sequence, first + number)
            if bin_position < self.size:
                yield bin_position, index - int(packed.bounds[number])


class BudgetEpoch(Epoch):
    """Epoch whose batches are bins: step s reads the bins from ``s * ranks`` on, one for each rank.

    If there are too few bins for the last global batch, it is completed with others of the last part.
    """

    def __init__(self, parts: Sequence[EpochPart], micro_batches: int, world: World) -> None:
        """Partition bins among ranks.

        Args:
            parts: The bins.
            micro_batches: Bins of an optimizer step over all ranks.
            world: The number of nodes and ranks.

        Raises:
            ConfigError: If the ranks do not divide the global batch.
        """
        if micro_batches % world.ranks:
            raise ConfigError(
                f"a step of {micro_batches} batches cannot be divided among {world.ranks} ranks; use "
                "a number of ranks that divides it, or begin a run with other micro_batches="
            )
        self._parts = parts
        self._ends = np.cumsum([part.size for part in parts])
        self._padded = -(-int(self._ends[-1]) // micro_batches) * micro_batches
        self._ranks = world.ranks
        self.steps = self._padded // world.ranks

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        position = world.node + world.nodes * world.rank_of_node
        bins = [self._bin(step * self._ranks + position) for step in steps.tolist()]
        ids = np.full((len(bins), max(map(len, bins), default=0)), -1, np.int64)
        for row, samples in zip(ids, bins):
            row[: len(samples)] = samples
        return ids

    def rows_per_step(self, batch: int) -> int:
        return self._parts[0].windows.samples_per_bin

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        places = []
        for part, end in zip(self._parts, self._ends.tolist()):
            last = self._padded if part is self._parts[-1] else end
            for position, place in part.locate(sample):
                for padded in range(end - part.size + position, last, part.size):
                    step, turn = divmod(padded, self._ranks)
                    places.append(Place(step, position_owner(world, turn)[0], place))
        return sorted(places, key=lambda place: place.step)

    def _bin(self, position: int) -> Int64:
        number = int(np.searchsorted(self._ends[:-1], position, side="right"))
        part = self._parts[number]
        return part.bin((position - int(self._ends[number]) + part.size) % part.size)
