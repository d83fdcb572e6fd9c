"""Samples of one stream by number, for batches of several streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streamplug.plan import CanonicalNodes, OrderedSamples
from streamplug.types import Int64


class StreamSamples(ABC):
    """Samples of a stream, numbered from 0 in the order in which they are taken."""

    @abstractmethod
    def samples(self, numbers: Int64) -> Int64:
        """Return the sample ids at some numbers, shape ``[n]``."""

    @abstractmethod
    def canonical_nodes(self, numbers: Int64) -> Int64:
        """Return the approximate canonical node of each number."""

    @abstractmethod
    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        """Return the numbers in ``[first, last)`` of a sample of this stream."""


class SinglePass(StreamSamples):
    """Samples of a stream in one epoch, in units of one canonical node each.

    The last unit is padded from the beginning of the order; after it, the units repeat. A stream must have at
    least one sample. `size` is the number of samples with padding.
    """

    def __init__(self, ordered: OrderedSamples, canonical_nodes: int, unit: int) -> None:
        self._ordered, self._unit = ordered, unit
        self._nodes = CanonicalNodes(-(-ordered.size // unit), canonical_nodes)
        self.size = self._nodes.size * unit

    def samples(self, numbers: Int64) -> Int64:
        units, offsets = np.divmod(numbers % self.size, self._unit)
        entries = self._nodes.entries(units) * self._unit + offsets
        return self._ordered.samples(entries % self._ordered.size)

    def canonical_nodes(self, numbers: Int64) -> Int64:
        return numbers // self._unit % self._nodes.count

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        numbers: list[int] = []
        for entry in self._ordered.entries(sample):
            for repeated_entry in range(entry, self.size, self._ordered.size):
                unit, offset = divmod(repeated_entry, self._unit)
                number = self._nodes.position(unit) * self._unit + offset
                number += -(-max(first - number, 0) // self.size) * self.size
                numbers += range(number, last, self.size)
        return sorted(numbers)


class RepeatedPasses(StreamSamples):
    """Unbounded passes over all samples of a stream, each in its own order."""

    def __init__(
        self, make_pass: Callable[[int], OrderedSamples], size: int, canonical_nodes: int
    ) -> None:
        self._make_pass = lru_cache(maxsize=4)(make_pass)
        self._nodes = CanonicalNodes(size, canonical_nodes)

    def samples(self, numbers: Int64) -> Int64:
        passes, positions = np.divmod(numbers, self._nodes.size)
        ids = np.empty_like(numbers)
        for number in np.unique(passes).tolist():
            in_pass = passes == number
            entries = self._nodes.entries(positions[in_pass])
            ids[in_pass] = self._make_pass(number).samples(entries)
        return ids

    def canonical_nodes(self, numbers: Int64) -> Int64:
        return numbers % self._nodes.size % self._nodes.count

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        size = self._nodes.size
        numbers = [
            number * size + self._nodes.position(entry)
            for number in range(first // size, -(-last // size))
            for entry in self._make_pass(number).entries(sample)
        ]
        return [number for number in sorted(numbers) if first <= number < last]


class Rest(StreamSamples):
    """What is left of a pass after its first `used` samples, then further passes from their beginning."""

    def __init__(self, piece: SinglePass, used: int, then: StreamSamples) -> None:
        self._piece, self._used, self._then = piece, used, then
        self._size = max(piece.size - used, 0)

    def samples(self, numbers: Int64) -> Int64:
        return self._of_both(numbers, lambda samples, own: samples.samples(own))

    def canonical_nodes(self, numbers: Int64) -> Int64:
        return self._of_both(numbers, lambda samples, own: samples.canonical_nodes(own))

    def _of_both(self, numbers: Int64, get: Callable[[StreamSamples, Int64], Int64]) -> Int64:
        values, is_rest = np.empty_like(numbers), numbers < self._size
        if is_rest.any():
            values[is_rest] = get(self._piece, numbers[is_rest] + self._used)
        if not is_rest.all():
            values[~is_rest] = get(self._then, numbers[~is_rest] - self._size)
        return values

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        used, size = self._used, self._size
        numbers = [
            number - used
            for number in self._piece.numbers(sample, first + used, min(last, size) + used)
        ]
        later = self._then.numbers(sample, max(first - size, 0), max(last - size, 0))
        return numbers + [number + size for number in later]
