"""Epoch of batches of limited cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Place, position_owner
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

    def bins(self, positions: Int64) -> list[Int64]:
        """Return the samples of the bins at some positions."""
        sequences, numbers = self.order.locate(positions)
        windows = np.empty_like(numbers)
        for sequence in set(sequences.tolist()):
            of_sequence, firsts = sequences == sequence, self._first_bins[sequence]
            windows[of_sequence] = firsts.searchsorted(numbers[of_sequence], side="right") - 1
        bins, latest = [], (-1, -1)
        for sequence, number, of_bin in zip(sequences.tolist(), numbers.tolist(), windows.tolist()):
            if (sequence, of_bin) != latest:
                latest = sequence, of_bin
                window, first = self._window(sequence, of_bin)
            bins.append(window.bin(number - first))
        return bins

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

    def __init__(self, parts: Sequence[EpochPart], micro_batches: int) -> None:
        """Read the bins of all parts, `micro_batches` of them in a global batch."""
        self._parts, self.global_batch = parts, micro_batches
        self._ends = np.cumsum([part.size for part in parts])
        self.units = range(-(-int(self._ends[-1]) // micro_batches) * micro_batches)

    def units_per_step(self, world: World) -> int:
        if self.global_batch % world.ranks:
            raise ConfigError(
                f"a step of {self.global_batch} batches cannot be divided among {world.ranks} ranks; use "
                "a number of ranks that divides it, or begin a run with other micro_batches="
            )
        return world.ranks

    def ids(self, world: World, steps: Int64) -> tuple[Int64, Int64]:
        positions = (
            steps * self.units_per_step(world) + world.node + world.nodes * world.rank_of_node
        )
        bins = self._bins(positions)
        offsets = np.zeros(len(bins) + 1, np.int64)
        np.cumsum([len(samples) for samples in bins], out=offsets[1:])
        return np.concatenate([np.empty(0, np.int64), *bins]), offsets

    def rows_per_step(self, world: World) -> int:
        return self._parts[0].windows.samples_per_bin

    def where(self, world: World, sample: int) -> list[Place]:
        ranks, places = self.units_per_step(world), []
        for part, end in zip(self._parts, self._ends.tolist()):
            last = self.units.stop if part is self._parts[-1] else end
            for position, place in part.locate(sample):
                for padded in range(end - part.size + position, last, part.size):
                    step, turn = divmod(padded, ranks)
                    places.append(Place(step, position_owner(world, turn)[0], place))
        return sorted(places, key=lambda place: place.step)

    def _bins(self, positions: Int64) -> list[Int64]:
        if len(self._parts) == 1:
            return self._parts[0].bins(positions % self._parts[0].size)
        bins: dict[int, Int64] = {}
        numbers = np.searchsorted(self._ends[:-1], positions, side="right")
        for number in set(numbers.tolist()):
            part, places = self._parts[number], np.flatnonzero(numbers == number)
            own = (positions[places] - self._ends[number] + part.size) % part.size
            bins.update(zip(places.tolist(), part.bins(own)))
        return [bins[place] for place in range(len(positions))]
