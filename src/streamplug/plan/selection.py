"""Which samples of the shards make up an epoch, as virtual shards.

A virtual shard is a shard taken whole, or some of its samples in stored order. The virtual shards one after
the other are what an order is made of; an entry is a position there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np

from streamplug.types import Int64


class Selection(ABC):
    """The virtual shards of an epoch.

    Attributes:
        starts: First entry of each virtual shard and the total, shape ``[virtual shards + 1]``.
    """

    starts: Int64

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.starts[-1])

    @abstractmethod
    def samples(self, entries: Int64) -> Int64:
        """Return the sample ids of some entries, in any shape."""

    @abstractmethod
    def entries(self, sample: int) -> list[int]:
        """Return the entries at which a sample is taken: none, one or several."""


class Whole(Selection):
    """Every sample once."""

    def __init__(self, starts: Int64) -> None:
        """Take the shards that begin at `starts`."""
        self.starts = starts

    def samples(self, entries: Int64) -> Int64:
        return entries

    def entries(self, sample: int) -> list[int]:
        return [sample] if 0 <= sample < self.size else []


class Chosen(Selection):
    """Some number of samples of each shard, some shards more than once."""

    def __init__(self, starts: Int64, chosen: Int64) -> None:
        """Take ``chosen[i]`` samples of the shard that begins at ``starts[i]``; the last is the end."""
        sizes = np.diff(starts)
        safe = np.maximum(sizes, 1)
        passes, rest = chosen // safe, chosen % safe
        units = passes + (rest > 0)
        self._shard = np.repeat(np.arange(len(sizes)), units)
        self._first, self._sizes = starts[:-1], sizes
        # The units of a shard are its whole passes, then what is left.
        number = np.arange(len(self._shard)) - np.repeat(np.cumsum(units) - units, units)
        self._partial = number >= passes[self._shard]
        taken = np.where(self._partial, rest[self._shard], sizes[self._shard])
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(taken)])

    def samples(self, entries: Int64) -> Int64:
        flat = entries.reshape(-1)
        unit = np.searchsorted(self.starts, flat, side="right") - 1
        offset = flat - self.starts[unit]
        partial = self._partial[unit]
        for number in np.unique(unit[partial]).tolist():
            here = unit == number
            offset[here] = self.picked(number)[offset[here]]
        found: Int64 = self._first[self._shard[unit]] + offset
        return found.reshape(entries.shape)

    def entries(self, sample: int) -> list[int]:
        shard = int(np.searchsorted(self._first, sample, side="right")) - 1
        offset = sample - int(self._first[shard])
        found = []
        first, last = np.searchsorted(self._shard, [shard, shard + 1]).tolist()
        for unit in range(first, last):
            at = np.array([offset])
            if self._partial[unit]:
                at = np.flatnonzero(self.picked(unit) == offset)
            found += (at + self.starts[unit]).tolist()
        return found

    @abstractmethod
    def picked(self, unit: int) -> Int64:
        """Return which samples of its shard a partial unit takes: offsets, ascending."""


class Keyed(Chosen):
    """Partial shards are drawn where they are read, each by a generator of its own."""

    def __init__(self, starts: Int64, chosen: Int64, seed: int, epoch: int) -> None:
        """See `Chosen`; `seed` and `epoch` decide what is drawn."""
        super().__init__(starts, chosen)
        self._key = np.array([seed % (1 << 64), epoch], np.uint64)
        self._cached = lru_cache(maxsize=64)(self._draw)

    def picked(self, unit: int) -> Int64:
        return self._cached(unit)

    def _draw(self, unit: int) -> Int64:
        shard = self._shard[unit]
        bits = np.random.Philox(counter=[0, shard, 0, 8], key=self._key)
        count = int(self.starts[unit + 1] - self.starts[unit])
        return np.sort(
            np.random.Generator(bits).choice(int(self._sizes[shard]), count, replace=False)
        )


class Drawn(Chosen):
    """Partial shards are drawn one after the other, as mosaicml-streaming does."""

    def __init__(self, starts: Int64, chosen: Int64, rng: np.random.Generator) -> None:
        """See `Chosen`; draws all partial shards from `rng`, in order."""
        super().__init__(starts, chosen)
        sizes, counts = np.diff(starts), np.diff(self.starts)
        self._picked = {
            unit: np.sort(
                rng.choice(int(sizes[self._shard[unit]]), int(counts[unit]), replace=False)
            )
            for unit in np.flatnonzero(self._partial).tolist()
        }

    def picked(self, unit: int) -> Int64:
        return self._picked[unit]
