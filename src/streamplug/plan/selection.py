"""Which samples of the shards make up an epoch, as virtual shards.

A virtual shard is a shard taken whole, or some of its samples. The virtual shards one after
the other are what an order is made of; an entry is a position there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        """Take the shards that begin at the sample ids `starts`; the last is the end."""
        self._first = int(starts[0])
        self.starts = starts - self._first if self._first else starts

    def samples(self, entries: Int64) -> Int64:
        return entries + self._first if self._first else entries

    def entries(self, sample: int) -> list[int]:
        return [sample - self._first] if 0 <= sample - self._first < self.size else []


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
        here = self._partial[unit]
        if here.any():
            offset[here] = self._partly(unit[here], offset[here])
        found: Int64 = self._first[self._shard[unit]] + offset
        return found.reshape(entries.shape)

    def entries(self, sample: int) -> list[int]:
        shard = int(np.searchsorted(self._first, sample, side="right")) - 1
        offset = sample - int(self._first[shard])
        found = []
        first, last = np.searchsorted(self._shard, [shard, shard + 1]).tolist()
        for unit in range(first, last):
            numbers = self._numbers(unit, offset) if self._partial[unit] else [offset]
            found += [int(self.starts[unit]) + number for number in numbers]
        return found

    @abstractmethod
    def _partly(self, units: Int64, numbers: Int64) -> Int64:
        """Return which samples of their shards partial units take, each as its so-many-th: offsets."""

    @abstractmethod
    def _numbers(self, unit: int, offset: int) -> list[int]:
        """Return as its so-many-th a partial unit takes a sample of its shard, if it does."""


class Keyed(Chosen):
    """Partial shards are sampled by a function of each entry, so that none is ever drawn whole.

    Of a shard with n samples of which k are taken, the n samples are a circle, turned by a random number
    and cut into k cells that differ in size by one at most; of each cell one sample is taken, at random.
    So each sample is as likely as any other.
    """

    def __init__(
        self, starts: Int64, chosen: Int64, seed: int, epoch: int, stream: int = 0
    ) -> None:
        """See `Chosen`; `seed`, `epoch` and `stream` decide what is taken."""
        super().__init__(starts, chosen)
        self._key = np.uint64(0)
        for word in (seed % (1 << 64), epoch, stream):
            self._key = _mixed(self._key ^ np.uint64(word))

    def _partly(self, units: Int64, numbers: Int64) -> Int64:
        sizes, counts, turns, keys = self._cells(units)
        cells = numbers * sizes // counts
        width = (numbers + 1) * sizes // counts - cells
        return (cells + turns + _below(_mixed(keys + numbers.view(np.uint64)), width)) % sizes

    def _numbers(self, unit: int, offset: int) -> list[int]:
        units = np.array([unit])
        sizes, counts, turns, _ = self._cells(units)
        place = (offset - turns) % sizes
        number = ((place + 1) * counts - 1) // sizes  # of the cell that the offset is in
        return [int(number[0])] if self._partly(units, number)[0] == offset else []

    def _cells(self, units: Int64) -> tuple[Int64, Int64, Int64, NDArray[np.uint64]]:
        """Return, of each unit's shard, its size, how many are taken, its turn, and its key."""
        shards = self._shard[units]
        sizes, counts = self._sizes[shards], self.starts[units + 1] - self.starts[units]
        keys = _mixed(self._key ^ shards.view(np.uint64))
        return sizes, counts, _below(keys, sizes), _mixed(keys)


def _mixed(bits: Any) -> Any:
    """Return bits that look random: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _below(bits: NDArray[np.uint64], limits: Int64) -> Int64:
    """Return numbers in ``[0, limit)``, limits being at most 2**31."""
    found: Int64 = ((bits >> np.uint64(33)) * limits.view(np.uint64) >> np.uint64(31)).view(
        np.int64
    )
    return found


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

    def _partly(self, units: Int64, numbers: Int64) -> Int64:
        found = np.empty_like(numbers)
        for unit in np.unique(units).tolist():
            here = units == unit
            found[here] = self._picked[unit][numbers[here]]
        return found

    def _numbers(self, unit: int, offset: int) -> list[int]:
        found: list[int] = np.flatnonzero(self._picked[unit] == offset).tolist()
        return found
