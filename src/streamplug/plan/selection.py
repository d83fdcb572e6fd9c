"""Which samples of the shards make up an epoch, as virtual shards.

The virtual shards one after the other are what an order is made of; an entry is a position there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

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

    def __init__(self, starts: Int64, first: int = 0) -> None:
        """Take the shards that begin at `starts`; their sample ids begin with `first`."""
        self.starts, self._first = starts, first

    def samples(self, entries: Int64) -> Int64:
        return entries + self._first

    def entries(self, sample: int) -> list[int]:
        at = sample - self._first
        return [at] if 0 <= at < self.size else []
