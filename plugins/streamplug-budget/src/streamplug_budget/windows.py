"""Bins of the samples of an epoch, window by window of its order.

The order of an epoch is split into sequences, each of the samples of some canonical nodes, and every
sequence into windows of a fixed number of samples. The samples of a window are packed into bins. Their number
depends on sums of costs only, so the bins before any window are known after one pass over the costs. The last
window may be packed into more bins than needed, which completes the last global batch of an epoch.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamplug.types import Int64
from streamplug_budget.budget import BatchBudget
from streamplug_budget.packing import count_bins, group_padded, pack, split_bins
from streamplug_budget.sample_lengths import SampleLengths
from streamplug_budget.sequence import Sequences

_BINS_PER_WINDOW, _MIN_BINS_PER_WINDOW = 256, 16
_MIN_WINDOW, _MAX_WINDOW = 1 << 10, 1 << 16
"""Samples of a window; more where these would make too few bins."""
_MIN_BINS_PER_SEQUENCE = 64
_MAX_PACKED_WINDOWS = 8  # besides one of each sequence
_MAX_TOTAL_COST = 1 << 62
"""Largest sum of the costs of a window that are packed, so that no sum in `pack` exceeds an int64."""
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

    @property
    def samples_per_bin(self) -> float:
        """Approximate number of samples of a bin."""
        samples = max(self.budget.largest_cost / self.mean, 1.0)
        return samples if self.max_samples is None else min(samples, self.max_samples)

    def count_sequences(self, size: int, canonical_nodes: int) -> int:
        """Return the number of sequences of an epoch of `size` samples; it divides the canonical nodes."""
        bins = size / self.samples_per_bin
        return next(
            count
            for count in range(canonical_nodes, 0, -1)
            if canonical_nodes % count == 0
            and (count == 1 or bins >= count * _MIN_BINS_PER_SEQUENCE)
        )

    def identity(self) -> dict[str, Any]:
        """Return what bins depend on besides the order of the samples, as JSON values."""
        return {
            **self.budget.identity(),
            "max_samples": self.max_samples,
            "lengths": self.lengths.digest,
        }

    def _pack_costs(self, costs: Int64) -> tuple[Int64, int]:
        """Return costs and a limit by which bins have at most `max_samples` samples."""
        limit, most = self.budget.largest_cost, self.max_samples
        if most is None:
            return costs, limit
        total = int(costs.sum())
        scale, least = _scale_costs(limit, most)
        if total * scale + len(costs) * least > _MAX_TOTAL_COST:
            # No bin has more than all samples, or costs more than they do.
            limit, most = min(limit, total), min(most, len(costs))
            scale, least = _scale_costs(limit, most)
        return np.maximum(costs * scale, least), limit * scale

    def count_bins(self, samples: Int64) -> int:
        """Return the number of bins of a window of samples."""
        costs, limit = self.budget.costs(self.lengths.of(samples)), self.budget.largest_cost
        if self.budget.pad_to == "batch":
            return group_padded(costs, limit, self.max_samples)[1]
        return count_bins(*self._pack_costs(costs))

    def pack(self, samples: Int64, bins: int) -> tuple[Int64, Int64]:
        """Return the bin of each sample of a window, and the cost of each bin; `bins` is their number."""
        costs, limit = self.budget.costs(self.lengths.of(samples)), self.budget.largest_cost
        if self.budget.pad_to == "batch":
            chosen, needed = group_padded(costs, limit, self.max_samples)
            chosen, largest = split_bins(chosen, needed, bins), np.zeros(bins, np.int64)
            np.maximum.at(largest, chosen, costs)
            return chosen, largest * np.bincount(chosen)
        chosen = split_bins(*pack(*self._pack_costs(costs)), bins)
        return chosen, np.bincount(chosen, costs, bins).astype(np.int64)


def _scale_costs(limit: int, most: int) -> tuple[int, int]:
    """Return a scale of costs, and the least scaled cost that allows no more than `most` samples in a bin."""
    scale = -(-most * (most + 1) // limit)  # makes it exact
    return scale, limit * scale // (most + 1) + 1


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
    """Windows of the sequences of an epoch, or of a part of it; they can be pickled.

    Attributes:
        sequences: The sequences.
        samples_per_bin: Approximate number of samples of a bin.
        window_size: Number of samples of a window; up to half more or less for the last one of a sequence.
        window_counts: Number of windows of each sequence.
    """

    def __init__(self, sequences: Sequences, model: CostModel, group: int, offset: int) -> None:
        """Split sequences into windows.

        Args:
            sequences: The samples.
            model: The costs.
            group: Number of batches of a step, which have similar costs where a window has them.
            offset: Random number below 2**64 on which the order of bins depends.
        """
        self.sequences, self._model, self._offset = sequences, model, offset
        samples_per_bin = model.samples_per_bin
        self.samples_per_bin = max(int(samples_per_bin), 1)
        window = min(max(int(_BINS_PER_WINDOW * samples_per_bin), _MIN_WINDOW), _MAX_WINDOW)
        self.window_size = max(window, int(_MIN_BINS_PER_WINDOW * samples_per_bin))
        self._group = max(group // len(sequences.sizes), 1)
        self.window_counts = [
            max((size + self.window_size // 2) // self.window_size, min(size, 1))
            for size in sequences.sizes
        ]
        self._packed: OrderedDict[tuple[int, int], Window] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": OrderedDict()}

    def positions(self, sequence: int, window: int) -> range:
        """Return the positions of a window in its sequence."""
        first, size = window * self.window_size, self.sequences.sizes[sequence]
        is_last = window == self.window_counts[sequence] - 1
        return range(first, size if is_last else first + self.window_size)

    def estimate_windows(self, bins: int) -> int:
        """Return the approximate number of windows that have these bins of a sequence."""
        return -(-bins * self.samples_per_bin // self.window_size) + 1

    def _samples(self, sequence: int, window: int) -> Int64:
        positions = self.positions(sequence, window)
        return self.sequences.samples(sequence, np.arange(positions.start, positions.stop))

    def count_bins(self, sequence: int, window: int) -> int:
        """Return the number of bins that a window needs."""
        return self._model.count_bins(self._samples(sequence, window))

    def window(self, sequence: int, window: int, bins: range) -> Window:
        """Return a window that is packed into bins of these numbers in its sequence."""
        packed = self._packed.pop((sequence, window), None)
        if packed is None:
            packed = self._pack(self._samples(sequence, window), bins)
            if len(self._packed) > _MAX_PACKED_WINDOWS + len(self.window_counts):
                self._packed.popitem(last=False)
        self._packed[sequence, window] = packed  # as the one that was used last
        return packed

    def _pack(self, samples: Int64, bins: range) -> Window:
        chosen, costs = self._model.pack(samples, len(bins))
        new_numbers = np.empty(len(costs), np.int64)
        new_numbers[self._order_bins(costs, bins.start)] = np.arange(len(costs))
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
        for sequence, position in self.sequences.locate(sample):
            window = min(position // self.window_size, self.window_counts[sequence] - 1)
            places.append((sequence, window, position - window * self.window_size))
        return places
