"""Bins of the samples of an epoch, window by window of its order.

The order of an epoch is split into sequences, each of the samples of some canonical nodes, and every
sequence into windows of a fixed number of samples. The samples of a window are packed into bins. Their number
depends on sums of costs only, so the bins before any window are known after one pass over the costs.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamplug.plan import OrderedSamples
from streamplug.plan.canonical_nodes import CanonicalNodes
from streamplug.types import Int64
from streamplug_budget.budget import BatchBudget
from streamplug_budget.packing import count_bins, group_padded, pack
from streamplug_budget.sample_lengths import SampleLengths

_BINS_PER_WINDOW, _MIN_BINS_PER_WINDOW = 256, 16
_MIN_WINDOW, _MAX_WINDOW = 1 << 10, 1 << 16
"""Samples of a window; more where these would make too few bins."""
_MIN_BINS_PER_SEQUENCE = 64
_MAX_PACKED_WINDOWS = 8  # besides one of each sequence
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio's fraction, times 2**64."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """Lengths of the samples, and the options that make costs and bins of them.

    `max_samples` is the largest number of samples of a bin; None for any number.
    """

    lengths: SampleLengths
    budget: BatchBudget
    max_samples: int | None

    @property
    def mean(self) -> float:
        """Approximate mean cost of a sample."""
        return float(self.budget.costs(np.array([round(self.lengths.mean)]))[0])

    def _pack_costs(self, costs: Int64) -> tuple[Int64, int]:
        """Return costs and a limit by which bins have at most `max_samples` samples."""
        limit, most = self.budget.largest_cost, self.max_samples
        if most is None:
            return costs, limit
        # The least cost allows no more than `most` samples in a bin; the scale makes it exact.
        scale = -(-most * (most + 1) // limit)
        return np.maximum(costs * scale, limit * scale // (most + 1) + 1), limit * scale

    def count_bins(self, samples: Int64) -> int:
        """Return the number of bins of a window of samples."""
        costs, limit = self.budget.costs(self.lengths.of(samples)), self.budget.largest_cost
        if self.budget.pad_to == "batch":
            return group_padded(costs, limit, self.max_samples)[1]
        return count_bins(*self._pack_costs(costs))

    def pack(self, samples: Int64) -> tuple[Int64, Int64]:
        """Return the bin of each sample of a window, and the cost of each bin."""
        costs, limit = self.budget.costs(self.lengths.of(samples)), self.budget.largest_cost
        if self.budget.pad_to == "batch":
            chosen, bins = group_padded(costs, limit, self.max_samples)
            largest = np.zeros(bins, np.int64)
            np.maximum.at(largest, chosen, costs)
            return chosen, largest * np.bincount(chosen)
        chosen, bins = pack(*self._pack_costs(costs))
        return chosen, np.bincount(chosen, costs, bins).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Window:
    """Samples of a window in the order of their bins, and the bounds of the bins, shape ``[bins + 1]``.

    `offsets` has the position of each sample in the window before packing.
    """

    samples: Int64
    offsets: NDArray[np.uint32]
    bounds: Int64

    def bin(self, number: int) -> Int64:
        """Return the samples of a bin."""
        return self.samples[self.bounds[number] : self.bounds[number + 1]]


class EpochWindows:
    """Windows of the order of one epoch.

    Attributes:
        samples: Number of samples of the epoch.
        sequences: Number of sequences.
        window_counts: Number of windows of each sequence.
        samples_per_bin: Approximate number of samples of a bin.
    """

    def __init__(
        self,
        ordered: OrderedSamples,
        canonical_nodes: int,
        model: CostModel,
        group: int,
        offset: int,
    ) -> None:
        """Split an order into windows.

        Args:
            ordered: The samples in the order of the epoch.
            canonical_nodes: Number of canonical nodes of the order.
            model: The costs.
            group: Number of batches of a step, which have similar costs where a window has them.
            offset: Random number below 2**64 on which the order of bins depends.
        """
        self._ordered, self._model, self._offset = ordered, model, offset
        self.samples = ordered.size
        self._nodes = CanonicalNodes(ordered.size, canonical_nodes)
        samples_per_bin = max(model.budget.largest_cost / model.mean, 1.0)
        if model.max_samples is not None:
            samples_per_bin = min(samples_per_bin, model.max_samples)
        bins = ordered.size / samples_per_bin
        self.sequences = next(
            count
            for count in range(canonical_nodes, 0, -1)
            if canonical_nodes % count == 0
            and (count == 1 or bins >= count * _MIN_BINS_PER_SEQUENCE)
        )
        window = min(max(int(_BINS_PER_WINDOW * samples_per_bin), _MIN_WINDOW), _MAX_WINDOW)
        self._window = max(window, int(_MIN_BINS_PER_WINDOW * samples_per_bin))
        self.samples_per_bin = max(int(samples_per_bin), 1)
        self._group = max(group // self.sequences, 1)
        self.window_counts = [
            -(-self._size(sequence) // self._window) for sequence in range(self.sequences)
        ]
        self._packed: OrderedDict[tuple[int, int], Window] = OrderedDict()

    def _size(self, sequence: int) -> int:
        return max(-(-(self._nodes.size - sequence) // self.sequences), 0)

    def _positions(self, sequence: int, window: int) -> Int64:
        first = window * self._window
        last = min(first + self._window, self._size(sequence))
        return np.arange(first, last, dtype=np.int64)

    def _samples(self, sequence: int, positions: Int64) -> Int64:
        entries = self._nodes.entries(positions * self.sequences + sequence)
        return self._ordered.samples(entries)

    def count_bins(self, sequence: int, window: int) -> int:
        """Return the number of bins of a window."""
        return self._model.count_bins(self._samples(sequence, self._positions(sequence, window)))

    def window(self, sequence: int, window: int, first_bin: int) -> Window:
        """Return a window whose first bin has the number `first_bin` in its sequence."""
        packed = self._packed.pop((sequence, window), None)
        if packed is None:
            packed = self._pack(sequence, window, first_bin)
            if len(self._packed) > _MAX_PACKED_WINDOWS + self.sequences:
                self._packed.popitem(last=False)
        self._packed[sequence, window] = packed  # as the one that was used last
        return packed

    def _pack(self, sequence: int, window: int, first_bin: int) -> Window:
        positions = self._positions(sequence, window)
        samples = self._samples(sequence, positions)
        chosen, costs = self._model.pack(samples)
        new_numbers = np.empty(len(costs), np.int64)
        new_numbers[self._order_bins(costs, first_bin)] = np.arange(len(costs))
        chosen = new_numbers[chosen]
        order = np.argsort(chosen, kind="stable")
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(chosen))])
        offsets = order.astype(np.uint32)
        return Window(samples[order], offsets, bounds)

    def _order_bins(self, costs: Int64, first_bin: int) -> Int64:
        """Return a mixed order of the bins of a window in which those of one step have similar costs.

        The share of bins that cost less than a bin follows from its number alone, by a golden-ratio sequence
        (Kronecker), so that it is the same in all sequences.
        """
        groups = (first_bin + np.arange(len(costs), dtype=np.uint64)) // np.uint64(self._group)
        shares = groups * _GOLDEN_RATIO + np.uint64(self._offset)
        order = np.empty(len(costs), np.int64)
        order[np.argsort(shares, kind="stable")] = np.argsort(costs, kind="stable")
        return order

    def locate(self, sample: int) -> list[tuple[int, int, int]]:
        """Return sequence, window and position in the window of each occurrence of a sample."""
        places = []
        for entry in self._ordered.entries(sample):
            position, sequence = divmod(self._nodes.position(entry), self.sequences)
            places.append((sequence, *divmod(position, self._window)))
        return places
