"""Source: the samples of one stream, by number, as a schedule of streams asks for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streamplug.plan.feed import Feed
from streamplug.plan.lanes import Lanes
from streamplug.types import Int64


class Source(ABC):
    """The samples of a stream, numbered from 0 in the order in which they are taken."""

    @abstractmethod
    def samples(self, numbers: Int64) -> Int64:
        """Return the sample ids at some numbers, shape ``[n]``."""

    @abstractmethod
    def lanes(self, numbers: Int64) -> Int64:
        """Return from about which lane of the order each number is taken."""

    @abstractmethod
    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        """Return at which numbers in ``[first, last)`` a sample of this stream is taken."""


class Once(Source):
    """One epoch's samples of a stream, in units that each come from one lane.

    The last unit is filled up from the beginning of the order; behind it, the first comes again.
    """

    def __init__(self, feed: Feed, lanes: int, unit: int) -> None:
        """Cut a feed, of at least one entry, into units of so many samples."""
        self._feed, self._unit = feed, unit
        self._lanes = Lanes(-(-feed.size // unit), lanes)
        self._period = self._lanes.size * unit

    def samples(self, numbers: Int64) -> Int64:
        units, offsets = np.divmod(numbers % self._period, self._unit)
        entries = self._lanes.entries(units) * self._unit + offsets
        return self._feed.samples(entries % self._feed.size)

    def lanes(self, numbers: Int64) -> Int64:
        return numbers // self._unit % self._lanes.count

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        found: list[int] = []
        for entry in self._feed.entries(sample):
            for filled in range(entry, self._period, self._feed.size):
                unit, offset = divmod(filled, self._unit)
                number = self._lanes.flat(unit) * self._unit + offset
                number += -(-max(first - number, 0) // self._period) * self._period
                found += range(number, last, self._period)
        return sorted(found)


class Passes(Source):
    """A stream without end: pass after pass over all of its samples, each in an order of its own."""

    def __init__(self, feed: Callable[[int], Feed], size: int, lanes: int) -> None:
        """Take the order of a pass from `feed`; each has `size` entries."""
        self._feed = lru_cache(maxsize=4)(feed)
        self._lanes = Lanes(size, lanes)

    def samples(self, numbers: Int64) -> Int64:
        passes, flat = np.divmod(numbers, self._lanes.size)
        found = np.empty_like(numbers)
        for number in np.unique(passes).tolist():
            here = passes == number
            found[here] = self._feed(number).samples(self._lanes.entries(flat[here]))
        return found

    def lanes(self, numbers: Int64) -> Int64:
        return numbers % self._lanes.size % self._lanes.count

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        size = self._lanes.size
        found = [
            number * size + self._lanes.flat(entry)
            for number in range(first // size, -(-last // size))
            for entry in self._feed(number).entries(sample)
        ]
        return [number for number in sorted(found) if first <= number < last]
