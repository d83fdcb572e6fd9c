"""The partitions of mosaicml-streaming, in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces.shuffle import lane_bounds, lane_place
from streamplug.plan.partition import Elastic, Partition, Place
from streamplug.types import Int64, World

PARTITIONS = ("elastic", "orig", "relaxed")
"""Names of the partitions."""


class Repeating:
    """The interleaved lanes of an order: a lane one entry short repeats its last.

    Attributes:
        size: Number of entries.
        count: Number of lanes.
        length: Places of each lane, after short ones have repeated their last entry.
    """

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.length = -(-size // count)
        self.bounds = lane_bounds(size, count)

    def entries(self, lane: Int64, place: Int64) -> Int64:
        """Return the entries at places of lanes; a place behind a lane's last is its last."""
        first = self.bounds[lane]
        found: Int64 = np.minimum(first + place, self.bounds[lane + 1] - 1)
        return found

    def flat(self, entry: int) -> list[int]:
        """Return the flat positions of an entry: two where it is repeated."""
        lane, place = lane_place(self.bounds, entry)
        found = [place * self.count + lane]
        if place == self.bounds[lane + 1] - self.bounds[lane] - 1 and place < self.length - 1:
            found.append((self.length - 1) * self.count + lane)
        return found


class Orig(Partition):
    """The partition ``orig`` of mosaicml-streaming.

    Ranks get equally many entries by repeating some near the end, as few as their number asks for, so
    what is repeated depends on the world; the last batch may be short.
    """

    def __init__(
        self, size: int, lanes: int, world: World, batch: int, drop_first: int = 0
    ) -> None:
        """Deal `size` entries to a world.

        Raises:
            ConfigError: If neither of the numbers of lanes and nodes divides the other, or more is
                dropped than there is.
        """
        nodes = world.nodes
        if lanes % nodes and nodes % lanes:
            raise ConfigError(
                f"num_canonical_nodes={lanes} and {nodes} nodes: partition_algo='orig' needs one to "
                "be a multiple of the other; 'elastic' takes any"
            )
        self._lanes = Repeating(size, lanes)
        self._ratio = max(nodes // lanes, 1)
        self._extra = -self._lanes.length % self._ratio
        self._columns = self._lanes.length + self._extra
        self._tiled = size < lanes or (size == lanes and size < nodes)
        self._nodes, self._ranks, self._batch = nodes, world.ranks_per_node, batch
        if drop_first > -(-self._columns * lanes // world.ranks) * world.ranks:
            raise ConfigError(f"drop_first={drop_first} of {size} samples")
        self._drop = drop_first // nodes * nodes
        # Entries per node, and how many more make them divisible by its ranks.
        self._per_node = [
            max(-(-(self._columns * lanes - self._drop - node) // nodes), 0)
            for node in range(nodes)
        ]
        self._repeats = [-count % self._ranks for count in self._per_node]
        each = zip(self._per_node, self._repeats)
        self.per_rank = max((count + repeats) // self._ranks for count, repeats in each)
        self.steps = -(-self.per_rank // batch)

    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        number = steps[:, None] * batch + np.arange(batch, dtype=np.int64)
        return self._entries(world.node, world.rank_of_node, number)

    def _entries(self, node: int, rank: int, number: Int64) -> Int64:
        """Return the entries that a rank has as its so-many-th."""
        count, repeats = self._per_node[node], self._repeats[node]
        at = number * self._ranks + rank
        first = count - self._ranks - repeats + 1
        again = at - count + first if first >= 0 else at % max(count, 1)
        source = np.where(at < count, at, again)
        found = self._flat(self._drop + node + self._nodes * np.maximum(source, 0))
        return np.where(at < count + repeats, found, -1)

    def _flat(self, flat: Int64) -> Int64:
        lane, place = flat % self._lanes.count, flat // self._lanes.count
        if self._tiled:
            return (lane * self._columns + place) % self._lanes.size
        copied = self._copied(place)
        return self._lanes.entries(lane, np.where(place < self._lanes.length, place, copied))

    def _copied(self, column: Any) -> Any:
        """Return which column an extra one repeats."""
        return (column - self._extra - self._ratio + 1) % self._lanes.length

    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        found = []
        for flat in self._flats(entry):
            at, node = divmod(flat - self._drop, self._nodes)
            if at < 0:
                continue
            for index in self._repeated(node, at):
                number, rank = divmod(index, self._ranks)
                step, place = divmod(number, self._batch)
                found.append(Place(step, node * self._ranks + rank, place))
        return sorted(found, key=lambda p: p.step)

    def _flats(self, entry: int) -> list[int]:
        """Return the flat positions of an entry."""
        lanes = self._lanes.count
        if self._tiled:
            each = range(entry, lanes * self._columns, self._lanes.size)
            return [x % self._columns * lanes + x // self._columns for x in each]
        found = self._lanes.flat(entry)
        for flat in list(found):
            found += [
                column * lanes + flat % lanes
                for column in range(self._lanes.length, self._columns)
                if self._copied(column) == flat // lanes
            ]
        return found

    def _repeated(self, node: int, at: int) -> list[int]:
        """Return the places in a node's list that show its entry `at`."""
        count, repeats = self._per_node[node], self._repeats[node]
        first = count - self._ranks - repeats + 1
        if first < 0:
            return list(range(at, count + repeats, count))
        return [at, at - first + count] if first <= at < first + repeats else [at]


class Relaxed(Partition):
    """The partition ``relaxed`` of mosaicml-streaming: `Orig` of the world that a run began on."""

    def __init__(
        self,
        size: int,
        lanes: int,
        world: World,
        batch: int,
        *,
        drop_first: int,
        first_nodes: int,
    ) -> None:
        """Deal as on `first_nodes` nodes, with the same global batch.

        Raises:
            ConfigError: If the global batch cannot be dealt to the ranks of so many nodes.
        """
        total, ranks = batch * world.ranks, first_nodes * world.ranks_per_node
        if total % ranks:
            raise ConfigError(
                f"a global batch of {total} cannot be dealt to the {ranks} ranks that the run began on; "
                "keep it a multiple of them, or use partition_algo='elastic'"
            )
        self._first_batch = total // ranks
        self._first = World(first_nodes, world.ranks_per_node)
        self._orig = Orig(size, lanes, self._first, self._first_batch, drop_first)
        self.steps = self._orig.steps
        self.per_rank = -(-self._orig.per_rank * ranks // world.ranks)

    def entries(self, world: World, batch: int, steps: Int64) -> Int64:
        number = world.rank * batch + np.arange(batch, dtype=np.int64)
        rank, place = number // self._first_batch, number % self._first_batch
        found = np.empty((len(steps), batch), np.int64)
        for each in np.unique(rank).tolist():
            here = rank == each
            at = World(self._first.nodes, self._first.ranks_per_node, 1, each)
            found[:, here] = self._orig.entries(at, self._first_batch, steps)[:, place[here]]
        return found

    def places(self, world: World, batch: int, entry: int) -> list[Place]:
        found = []
        for p in self._orig.places(self._first, self._first_batch, entry):
            rank, place = divmod(p.rank * self._first_batch + p.place, batch)
            found.append(Place(p.step, rank, place))
        return found


def make_partition(
    algo: str,
    size: int,
    lanes: int,
    world: World,
    batch: int,
    *,
    drop_first: int = 0,
    first_nodes: int | None = None,
) -> Partition:
    """Return a partition by its name: ``elastic``, ``orig`` or ``relaxed``.

    Args:
        algo: The name.
        size: Entries of the order.
        lanes: Canonical nodes.
        world: Who reads.
        batch: Samples per batch of one rank.
        drop_first: Flat positions to leave out at the beginning; not for ``elastic``.
        first_nodes: For ``relaxed``: nodes on which the run began.

    Raises:
        ConfigError: If there is no such name, or it cannot serve this world.
    """
    if algo == "elastic":
        return Elastic(size, lanes, world, batch)
    if algo not in PARTITIONS:
        raise ConfigError(f"partition_algo={algo!r}: choose one of {', '.join(PARTITIONS)}")
    divides = not (lanes % world.nodes and world.nodes % lanes)
    if algo == "orig" or first_nodes is None or divides:
        return Orig(size, lanes, world, batch, drop_first)
    return Relaxed(size, lanes, world, batch, drop_first=drop_first, first_nodes=first_nodes)
