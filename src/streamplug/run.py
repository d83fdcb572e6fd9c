"""Run: the order of a data set's epochs, and where the reading of them stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

from streamplug.clock import EpochClock, private_cells
from streamplug.errors import ConfigError, StateError
from streamplug.interfaces import ShuffleAlgorithm
from streamplug.interfaces.shuffle import lane_bounds
from streamplug.plan import PARTITIONS, Epoch, Feed, Mixture, Partition, make_partition, state
from streamplug.plugin.registry import make
from streamplug.types import Int64, World


class Run:
    """What a data set does epoch after epoch, on whatever world reads it.

    Attributes:
        starts: First sample id of each shard, and the total, int64, shape ``[shards + 1]``.
        batch_size: Samples per batch of one rank, or None while nobody has said.
        clock: Counts the epochs.
    """

    def __init__(
        self,
        starts: Int64,
        streams: Sequence[int],
        mixture: Mixture,
        *,
        batch_size: int | None,
        shuffle_algo: str | None,
        shuffle_seed: int,
        shuffle_block_size: int | None,
        num_canonical_nodes: int | None,
        partition_algo: str,
    ) -> None:
        """Describe a run.

        Args:
            starts: First sample id of each shard, and the total.
            streams: First shard of each stream, and the total.
            mixture: What an epoch takes of each stream.
            batch_size: Samples per batch of one rank.
            shuffle_algo: Name of the shuffle; None does not shuffle.
            shuffle_seed: Its seed.
            shuffle_block_size: Its block size; None for its default.
            num_canonical_nodes: Lanes; None for the default of the shuffle.
            partition_algo: Name of the partition.
        """
        if partition_algo not in PARTITIONS:
            raise ConfigError(
                f"partition_algo={partition_algo!r}: choose one of {', '.join(PARTITIONS)}"
            )
        self.starts = starts
        self.batch_size = batch_size
        self.clock = EpochClock(private_cells())
        self._streams = streams
        self._mixture = mixture
        self._size = sum(mixture.choose)  # of an epoch
        self._partition_algo = partition_algo
        self._first_nodes: int | None = None
        self._digest = xxhash.xxh64(np.ascontiguousarray(starts).data).hexdigest()
        self._name = shuffle_algo
        self._algorithm: ShuffleAlgorithm = make("shuffle", shuffle_algo or "none")
        self._seed = shuffle_seed
        self._block_size = shuffle_block_size
        self._canonical_nodes = num_canonical_nodes
        self._nodes_given = num_canonical_nodes is not None
        # Epochs begun, epoch and step of what was handed out last in this process.
        self._cursor = (-1, 0, 0)
        self._epoch: tuple[object, Epoch] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": None}

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; without a batch size every sample is a batch."""
        return self.batch_size or 1

    def use_batch_size(self, batch_size: int | None) -> None:
        """Take over a loader's batch size, or check that it is the run's.

        Raises:
            ConfigError: If the run has another one, or nobody says.
        """
        if self.batch_size is None:
            self.batch_size = batch_size
        if batch_size not in (None, self.batch_size):
            raise ConfigError(
                f"a batch size of {batch_size} for a data set with batch_size={self.batch_size}"
            )
        if self.batch_size is None:
            raise ConfigError("no batch size: give it here, or as batch_size= of the data set")

    def partition(self, world: World) -> Partition:
        """Return how an epoch is dealt to a world.

        Raises:
            ConfigError: If there are no samples, or the partition cannot serve this world.
        """
        if not self._size:
            raise ConfigError("an epoch of the data set has no samples")
        if self._first_nodes is None:
            self._first_nodes = world.nodes
        lanes = self.identity(world).num_canonical_nodes
        return make_partition(
            self._partition_algo,
            self._size,
            lanes,
            world,
            self.batch,
            first_nodes=self._first_nodes,
        )

    def epoch(self, number: int, world: World) -> Epoch:
        """Return an epoch.

        Raises:
            ConfigError: As `partition`.
        """
        identity = self.identity(world)
        key = (number, identity, world.nodes, world.ranks_per_node)
        if self._epoch is None or self._epoch[0] != key:
            lanes = identity.num_canonical_nodes
            selection = self._mixture.select(
                self.starts,
                self._streams,
                self._seed,
                number,
                shuffled=self._name is not None,
            )
            order = self._algorithm.order(
                selection.starts,
                canonical_nodes=lanes,
                seed=identity.shuffle_seed,
                epoch=number,
                block_size=identity.shuffle_block_size,
            )
            bounds = lane_bounds(self._size, lanes)
            feed = Feed(selection, order, bounds, self.partition(world))
            self._epoch = (key, feed)
        return self._epoch[1]

    def identity(self, world: World) -> state.Identity:
        """Return what makes this run's order what it is; settles the canonical nodes."""
        if self._canonical_nodes is None:
            self._canonical_nodes = self._algorithm.default_canonical_nodes(world.nodes)
        nodes = self._canonical_nodes
        if self._partition_algo == "elastic":  # its lanes need a sample each
            nodes = max(min(nodes, self._size), 1)
        return state.Identity(
            size=int(self.starts[-1]),
            shards=self._digest,
            global_batch=self.batch * world.ranks,
            shuffle_algo=self._name,
            shuffle_seed=self._seed,
            shuffle_block_size=self._block_size or self._algorithm.default_block_size(nodes),
            num_canonical_nodes=nodes,
            partition_algo=self._partition_algo,
            choose=list(self._mixture.choose),
            sampling_method=self._mixture.method,
            sampling_granularity=self._mixture.granularity,
        )

    # -- where it stands --------------------------------------------------------

    def begin(self, ticket: int, worker: int) -> tuple[int, int]:
        """Begin an epoch, see `EpochClock.begin`; returns it and its first step."""
        epoch, step = self.clock.begin(ticket, worker)
        self._cursor = (self.clock.begun(), epoch, step)
        return epoch, step

    def moved_to(self, epoch: int, step: int) -> None:
        """Note that everything before a step has been handed out in this process."""
        self._cursor = (self._cursor[0], epoch, step)

    def state(self, world: World) -> dict[str, Any]:
        """Return the state as far as this process knows it.

        Raises:
            StateError: If loader workers have read since.
        """
        begun, epoch, step = self._cursor
        if self.clock.begun() == 0:
            return self.next_state(world)
        if self.clock.begun() != begun:
            raise StateError(
                "the data set was read by loader workers, which may be ahead of the training loop; "
                "use StreamingDataLoader.state_dict(), or pass num_samples="
            )
        identity = self.identity(world)
        return self._saved(world, epoch, step * identity.global_batch)

    def state_after(self, samples: int, world: World, *, from_beginning: bool) -> dict[str, Any]:
        """Return the state after so many samples, over all ranks, of the current epoch.

        Raises:
            StateError: If they are not whole global batches.
        """
        identity = self.identity(world)
        epoch, first = self.clock.current()
        begin = 0 if from_beginning else first * identity.global_batch
        saved = self._saved(world, epoch, begin + samples)
        state.load(saved, identity)  # refuses what is no place between two batches
        return saved

    def next_state(self, world: World) -> dict[str, Any]:
        """Return the state of a run that is about to begin an epoch."""
        identity = self.identity(world)
        epoch, step = self.clock.next()
        return self._saved(world, epoch, step * identity.global_batch)

    def _saved(self, world: World, epoch: int, samples: int) -> dict[str, Any]:
        first_nodes = self._first_nodes or world.nodes
        return state.save(self.identity(world), epoch, samples, first_nodes)

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Continue from a state.

        Raises:
            StateError: If it is of a run whose order differs from this one's.
        """
        before = self._canonical_nodes, self.batch_size
        nodes, batch = saved.get("num_canonical_nodes"), saved.get("global_batch")
        # What nobody asked for is as it was there.
        if not self._nodes_given and type(nodes) is int and nodes > 0:
            self._canonical_nodes = nodes
        if self.batch_size is None and type(batch) is int and batch > 0 == batch % world.ranks:
            self.batch_size = batch // world.ranks
        try:
            place = state.load(saved, self.identity(world))
        except StateError:
            self._canonical_nodes, self.batch_size = before
            raise
        first_nodes = saved.get("initial_physical_nodes")
        self._first_nodes = first_nodes if type(first_nodes) is int and first_nodes > 0 else None
        self.clock.set(*place)
