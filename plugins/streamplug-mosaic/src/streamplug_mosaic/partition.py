"""The partitions of mosaicml-streaming, in closed form.

An entry is a position in the concatenation of the canonical nodes of an order. A partition maps (rank, step,
position) to an entry of the interleaved canonical nodes, and back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.interfaces import canonical_node_bounds, locate_entry
from streamplug.plan import Place
from streamplug.types import Int64, World

PARTITIONS = ("orig", "relaxed")
"""Names of the partitions."""


class PaddedCanonicalNodes:
    """The interleaved canonical nodes of an order, where one that is an entry short repeats its last.

    Attributes:
        size: Number of entries.
        count: Number of canonical nodes.
        length: Positions of each canonical node, after short ones have repeated their last entry.
    """

    def __init__(self, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.length = -(-size // count)
        self.bounds = canonical_node_bounds(size, count)

    def entries(self, canonical_nodes: Int64, offsets: Int64) -> Int64:
        """Return the entries at offsets of canonical nodes; the last one repeats past the end."""
        entries = self.bounds[canonical_nodes] + offsets
        clipped: Int64 = np.minimum(entries, self.bounds[canonical_nodes + 1] - 1)
        return clipped

    def positions(self, entry: int) -> list[int]:
        """Return the positions of an entry in the interleaved sequence: two where it is repeated."""
        canonical_node, offset = locate_entry(self.bounds, entry)
        positions = [offset * self.count + canonical_node]
        last_offset = self.bounds[canonical_node + 1] - self.bounds[canonical_node] - 1
        if offset == last_offset and offset < self.length - 1:
            positions.append((self.length - 1) * self.count + canonical_node)
        return positions


def padded_size(size: int, canonical_nodes: int) -> int:
    """Return the number of positions of interleaved canonical nodes, with repeated entries."""
    return -(-size // canonical_nodes) * canonical_nodes


def fits(canonical_nodes: int, nodes: int) -> bool:
    """Return whether canonical nodes can be split among nodes evenly, or the reverse."""
    return canonical_nodes % nodes == 0 or nodes % canonical_nodes == 0


class Partition(ABC):
    """Split of the entries of an order among the ranks of one world.

    Attributes:
        steps: Number of global batches; the last one may be short.
        per_rank: Number of samples of each rank, or of the one that reads most.
    """

    steps: int
    per_rank: int

    @abstractmethod
    def entries(self, world: World, steps: Int64) -> Int64:
        """Return the entries of a rank's batches, -1 where a batch is short.

        Args:
            world: The world, with the rank.
            steps: Global batches, shape ``[n]``.

        Returns:
            int64, shape ``[n, batch]``.
        """

    @abstractmethod
    def places(self, entry: int) -> list[Place]:
        """Return the places of an entry, sorted by step; several if it is repeated."""


class OrigPartition(Partition):
    """The partition ``orig`` of mosaicml-streaming.

    Ranks get equally many entries by repeating some near the end, as few as their number requires, so the
    repeated ones depend on the world; the last batch may be short.
    """

    def __init__(
        self, size: int, canonical_nodes: int, world: World, batch: int, drop_first: int = 0
    ) -> None:
        """Split `size` entries among the ranks of a world.

        Raises:
            ConfigError: If neither the canonical nodes are a multiple of the nodes nor the reverse, or
                more entries are dropped than there are.
        """
        nodes = world.nodes
        if not fits(canonical_nodes, nodes):
            raise ConfigError(
                f"num_canonical_nodes={canonical_nodes} and {nodes} nodes: partition_algo='orig' needs one "
                "to be a multiple of the other; 'elastic' takes any"
            )
        self._padded = PaddedCanonicalNodes(size, canonical_nodes)
        self._ratio = max(nodes // canonical_nodes, 1)
        self._extra = -self._padded.length % self._ratio
        self._columns = self._padded.length + self._extra
        self._tiled = size < canonical_nodes or (size == canonical_nodes and size < nodes)
        self._nodes, self._ranks, self._batch = nodes, world.ranks_per_node, batch
        if drop_first > -(-self._columns * canonical_nodes // world.ranks) * world.ranks:
            raise ConfigError(f"drop_first={drop_first} of {size} samples")
        self._drop = drop_first // nodes * nodes
        # Entries per node, and how many more make them divisible by its ranks.
        self._per_node = [
            max(-(-(self._columns * canonical_nodes - self._drop - node) // nodes), 0)
            for node in range(nodes)
        ]
        self._repeats = [-count % self._ranks for count in self._per_node]
        totals = [count + repeats for count, repeats in zip(self._per_node, self._repeats)]
        self.per_rank = max(total // self._ranks for total in totals)
        self.steps = -(-self.per_rank // batch)

    def entries(self, world: World, steps: Int64) -> Int64:
        numbers = steps[:, None] * self._batch + np.arange(self._batch, dtype=np.int64)
        return self._entries_of_rank(world.node, world.rank_of_node, numbers)

    def _entries_of_rank(self, node: int, rank: int, numbers: Int64) -> Int64:
        count, repeats = self._per_node[node], self._repeats[node]
        index = numbers * self._ranks + rank
        first_repeated = count - self._ranks - repeats + 1
        from_end = first_repeated >= 0
        repeated = index - count + first_repeated if from_end else index % max(count, 1)
        source = np.where(index < count, index, repeated)
        entries = self._entries_at(self._drop + node + self._nodes * np.maximum(source, 0))
        return np.where(index < count + repeats, entries, -1)

    def _entries_at(self, positions: Int64) -> Int64:
        offsets, nodes = np.divmod(positions, self._padded.count)
        if self._tiled:
            return (nodes * self._columns + offsets) % self._padded.size
        copied = self._copied_column(offsets)
        return self._padded.entries(nodes, np.where(offsets < self._padded.length, offsets, copied))

    def _copied_column(self, column: Any) -> Any:
        """Return the column that an extra one repeats."""
        return (column - self._extra - self._ratio + 1) % self._padded.length

    def places(self, entry: int) -> list[Place]:
        places = []
        for position in self._positions(entry):
            index, node = divmod(position - self._drop, self._nodes)
            if index < 0:
                continue
            for repeated in self._repeated_indices(node, index):
                number, rank = divmod(repeated, self._ranks)
                step, position_in_batch = divmod(number, self._batch)
                places.append(Place(step, node * self._ranks + rank, position_in_batch))
        return sorted(places, key=lambda place: place.step)

    def _positions(self, entry: int) -> list[int]:
        count = self._padded.count
        if self._tiled:
            tiles = range(entry, count * self._columns, self._padded.size)
            return [x % self._columns * count + x // self._columns for x in tiles]
        positions = self._padded.positions(entry)
        for position in list(positions):
            positions += [
                column * count + position % count
                for column in range(self._padded.length, self._columns)
                if self._copied_column(column) == position // count
            ]
        return positions

    def _repeated_indices(self, node: int, index: int) -> list[int]:
        """Return the indices in a node's list at which its entry `index` occurs."""
        count, repeats = self._per_node[node], self._repeats[node]
        first = count - self._ranks - repeats + 1
        if first < 0:
            return list(range(index, count + repeats, count))
        if first <= index < first + repeats:
            return [index, index - first + count]
        return [index]


class RelaxedPartition(Partition):
    """The partition ``relaxed`` of mosaicml-streaming: `OrigPartition` of the world on which a run began."""

    def __init__(
        self,
        size: int,
        canonical_nodes: int,
        world: World,
        batch: int,
        *,
        drop_first: int,
        initial_nodes: int,
    ) -> None:
        """Partition as on `initial_nodes` nodes, with the same global batch.

        Raises:
            ConfigError: If the global batch is no multiple of the ranks of that many nodes.
        """
        total, ranks = batch * world.ranks, initial_nodes * world.ranks_per_node
        if total % ranks:
            raise ConfigError(
                f"a global batch of {total} cannot be split among the {ranks} ranks on which the run began; "
                "keep it a multiple of them, or use partition_algo='elastic'"
            )
        self._batch, self._initial_batch_size = batch, total // ranks
        self._initial_world = World(initial_nodes, world.ranks_per_node)
        self._orig = OrigPartition(
            size, canonical_nodes, self._initial_world, self._initial_batch_size, drop_first
        )
        self.steps = self._orig.steps
        self.per_rank = -(-self._orig.per_rank * ranks // world.ranks)

    def entries(self, world: World, steps: Int64) -> Int64:
        numbers = world.rank * self._batch + np.arange(self._batch, dtype=np.int64)
        ranks, positions = np.divmod(numbers, self._initial_batch_size)
        entries = np.empty((len(steps), self._batch), np.int64)
        for rank in np.unique(ranks).tolist():
            of_rank = ranks == rank
            initial = World(self._initial_world.nodes, self._initial_world.ranks_per_node, 1, rank)
            rows = self._orig.entries(initial, steps)
            entries[:, of_rank] = rows[:, positions[of_rank]]
        return entries

    def places(self, entry: int) -> list[Place]:
        places = []
        for place in self._orig.places(entry):
            number = place.rank * self._initial_batch_size + place.position
            places.append(Place(place.step, *divmod(number, self._batch)))
        return places


def make_partition(
    algo: str,
    size: int,
    canonical_nodes: int,
    world: World,
    batch: int,
    *,
    drop_first: int = 0,
    initial_nodes: int | None = None,
) -> Partition:
    """Return a partition by its name: ``orig`` or ``relaxed``.

    Args:
        algo: The name.
        size: Entries of the order.
        canonical_nodes: Number of canonical nodes.
        world: The number of nodes and ranks.
        batch: Samples per batch of one rank.
        drop_first: Positions to leave out at the beginning.
        initial_nodes: For ``relaxed``, the number of nodes on which the run began.

    Raises:
        ConfigError: If there is no such name, or it cannot serve this world.
    """
    if algo not in PARTITIONS:
        raise ConfigError(f"partition_algo={algo!r}: choose one of {', '.join(PARTITIONS)}")
    if algo == "orig" or initial_nodes is None or fits(canonical_nodes, world.nodes):
        return OrigPartition(size, canonical_nodes, world, batch, drop_first)
    return RelaxedPartition(
        size, canonical_nodes, world, batch, drop_first=drop_first, initial_nodes=initial_nodes
    )
