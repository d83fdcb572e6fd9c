"""Epoch of batches of limited cost."""

from __future__ import annotations

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Epoch, Place
from streamplug.plan.partition import position_owner
from streamplug.types import Int64, World
from streamplug_budget.bin_order import BinOrder
from streamplug_budget.windows import EpochWindows


class BudgetEpoch(Epoch):
    """Epoch whose batches are bins: step s reads the bins from ``s * ranks`` on, one for each rank.

    The bins of all sequences take turns, so that a node reads those of its own canonical nodes. The last
    global batch is completed with the first bins.
    """

    def __init__(
        self, windows: EpochWindows, bin_counts: Int64, global_batch: int, world: World
    ) -> None:
        """Partition bins among ranks.

        Args:
            windows: The windows.
            bin_counts: Number of bins of each window, sequence by sequence, shape ``[windows]``.
            global_batch: Bins of an optimizer step over all ranks.
            world: The number of nodes and ranks.

        Raises:
            ConfigError: If the ranks do not divide the global batch.
        """
        if global_batch % world.ranks:
            raise ConfigError(
                f"a step of {global_batch} batches cannot be divided among {world.ranks} ranks; use a number "
                "of ranks that divides it, or begin a run with other micro_batches="
            )
        self._windows = windows
        ends = np.cumsum(windows.window_counts)[:-1]
        # Number of the first bin of each window in its sequence, and the total.
        self._first_bins = [
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            for counts in np.split(bin_counts, ends)
        ]
        self._order = BinOrder([int(firsts[-1]) for firsts in self._first_bins])
        self._padded = -(-self._order.size // global_batch) * global_batch
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
        return self._windows.samples_per_bin

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        places = []
        for sequence, number, position in self._windows.locate(sample):
            first_bin = int(self._first_bins[sequence][number])
            window = self._windows.window(sequence, number, first_bin)
            index = int(np.flatnonzero(window.offsets == position)[0])
            bin_ = int(np.searchsorted(window.bounds, index, side="right")) - 1
            first = self._order.position(sequence, first_bin + bin_)
            for padded in range(first, self._padded, self._order.size):
                step, turn = divmod(padded, self._ranks)
                owner = position_owner(world, turn)[0]
                places.append(Place(step, owner, index - int(window.bounds[bin_])))
        return sorted(places, key=lambda place: place.step)

    def _bin(self, position: int) -> Int64:
        sequence, number = self._order.locate(position % self._order.size)
        firsts = self._first_bins[sequence]
        window = int(np.searchsorted(firsts, number, side="right")) - 1
        first = int(firsts[window])
        return self._windows.window(sequence, window, first).bin(number - first)
