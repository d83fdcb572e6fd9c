"""ShuffleAlgorithm: in which order the samples of an epoch come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64


def lane_bounds(total: int, lanes: int) -> Int64:
    """Cut ``[0, total)`` into nearly equal lanes: bounds ``total * c // lanes``, shape [lanes + 1]."""
    return np.array([total * lane // lanes for lane in range(lanes + 1)], np.int64)


def lane_place(bounds: Int64, entry: int) -> tuple[int, int]:
    """Return which lane an entry of the lanes' concatenation is in, and its place there."""
    lane = int(np.searchsorted(bounds, entry, side="right")) - 1
    return lane, entry - int(bounds[lane])


class Order(ABC):
    """The order of one epoch: canonical nodes ("lanes"), each a sequence of ids.

    Ids are positions in the concatenation of the shards that the order was made from. Over all lanes
    each id comes exactly once. Lane ``c`` has ``total * (c + 1) // C - total * c // C`` positions.
    """

    @abstractmethod
    def at(self, node: int, positions: Int64) -> Int64:
        """Return the ids at some positions of a canonical node.

        The cost depends on how many positions are asked for and how far they spread, not on where
        they lie nor on the length of the epoch.

        Args:
            node: Which canonical node, in ``[0, C)``.
            positions: Positions in its lane, shape ``[n]``, in any order.
        """

    def take(self, node: int, start: int, stop: int) -> Int64:
        """Return the ids at positions ``[start, stop)`` of a canonical node."""
        return self.at(node, np.arange(start, stop, dtype=np.int64))

    @abstractmethod
    def find(self, sample: int) -> tuple[int, int]:
        """Return where an id comes: its canonical node and its position there.

        The cost is bounded as for `at`.
        """


class ShuffleAlgorithm(ABC):
    """A named way to order an epoch; a pure function of its arguments.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
    """

    api_version: ClassVar[int] = 1

    @classmethod
    def from_spec(cls, argument: str | None) -> ShuffleAlgorithm:
        """Make the algorithm; the default takes nothing after its name.

        Raises:
            ConfigError: If the argument has no meaning here.
        """
        if argument is not None:
            raise ConfigError(f"shuffle {cls.__name__} takes no argument, got {argument!r}")
        return cls()

    def default_canonical_nodes(self, nodes: int) -> int:
        """Return how many canonical nodes a run on so many machines has unless told otherwise."""
        return nodes

    def default_block_size(self, canonical_nodes: int) -> int:
        """Return the block size, in samples, of a run that does not give one."""
        return max(4_000_000 // canonical_nodes, 1 << 18)

    @abstractmethod
    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Order:
        """Return the order of one epoch.

        Args:
            starts: First id of each shard, and the total behind the last, shape ``[shards + 1]``;
                a shard may be empty. Often mapped from a file and long: look at no more of it than
                needed.
            canonical_nodes: Number of lanes, at least 1.
            seed: The run's seed; lanes keep their shards from epoch to epoch.
            epoch: Which epoch, from 0.
            block_size: Distance in samples over which samples are mixed, at least 1.
        """


class EagerOrder(Order):
    """An order held as an array of all ids: for algorithms that must be computed whole.

    Takes 8 bytes per sample of the epoch, and as many again once `find` was asked.
    """

    def __init__(self, ids: Int64, canonical_nodes: int) -> None:
        """Hold an epoch's ids, the lanes one after the other."""
        self._ids = ids
        self._where: Int64 | None = None
        self._bounds = lane_bounds(len(ids), canonical_nodes)

    def at(self, node: int, positions: Int64) -> Int64:
        found: Int64 = self._ids[positions + self._bounds[node]]
        return found

    def find(self, sample: int) -> tuple[int, int]:
        if self._where is None:
            self._where = np.argsort(self._ids)
        return lane_place(self._bounds, int(self._where[sample]))
