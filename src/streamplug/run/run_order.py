"""The order of a run's samples on any world."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError
from streamplug.plan import DatasetFingerprint, Epoch, EpochConfig, Planner, state
from streamplug.run.hints import warn_about_batches, warn_about_order
from streamplug.run.order_options import OrderOptions
from streamplug.run.run_start import RunStart
from streamplug.types import Int64, World


class RunOrder:
    """The epochs of a data set, planned for any world and batch size."""

    def __init__(
        self, planner: Planner, fingerprint: DatasetFingerprint, options: OrderOptions
    ) -> None:
        self.options, self.batch_size = options, options.batch_size
        self.planner, self._fingerprint = planner, fingerprint
        self._start = RunStart()
        self.first_epoch = 0  # with which the run began, or was resumed
        self._epoch: tuple[object, Epoch] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": None}

    @property
    def initial_nodes(self) -> int | None:
        """Number of nodes with which the run began, from the loaded state; None without."""
        return self._start.nodes

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; 1 without a batch size."""
        return self.batch_size or 1

    def use_batch_size(self, batch_size: int | None) -> None:
        """Set the batch size to the loader's, or check that both are equal."""
        batch_size = whole_number("batch_size", batch_size, 1)
        if self.varies and self.batch_size is None and batch_size is not None:
            raise ConfigError(
                f"batch_size={batch_size}: batching_method={self.options.batching_method!r}: the largest "
                "number of samples of a batch is batch_size= of the data set; give it there, or leave it out"
            )
        if self.batch_size is None:
            self.batch_size = batch_size
        if batch_size not in (None, self.batch_size):
            raise ConfigError(
                f"batch_size={batch_size} differs from batch_size={self.batch_size} of the data set, on "
                "which the order depends; give both the same number, or leave it out here"
            )
        if self.batch_size is None and not self.varies:
            raise ConfigError("no batch size: give it here, or as batch_size= of the data set")

    @property
    def varies(self) -> bool:
        """Whether batches vary in size; positions then count batches over all ranks, not samples."""
        return self.planner.batches is not None

    def units_per_step(self, world: World) -> int:
        """Return the units of a position in a step, which has a batch of each rank."""
        return world.ranks if self.varies else self.batch * world.ranks

    def units_per_global_batch(self, world: World) -> int:
        """Return the units of a position in a global batch, which is the same in every world."""
        return self._micro_batches(world) if self.varies else self.batch * world.ranks

    def global_step(self, step: int, world: World) -> int:
        """Return the number of the global batch of a step; batches that vary may take several steps."""
        return step * world.ranks // self._micro_batches(world) if self.varies else step

    def steps_of_global_batch(self, step: int, world: World) -> Int64:
        """Return all steps of the global batch that a step is of."""
        count = self._micro_batches(world) // world.ranks if self.varies else 1
        return np.arange(step - step % count, step - step % count + count)

    def length(self, world: World) -> int:
        """Return the number of samples of a rank in an epoch, approximately if batches vary in size."""
        self._check_size()
        return self.planner.length(world, self.batch, self._epoch_config(world))

    def epoch(self, number: int, world: World) -> Epoch:
        """Return the plan of an epoch."""
        self._check_size()
        config = self._epoch_config(world)
        same_plan = self.options.elastic and not self.varies
        ranks = () if same_plan else (self.batch, world.nodes, world.ranks_per_node)
        key = (number, self.batch * world.ranks, ranks, config, self.planner.mixture)
        latest = self._epoch  # another thread may plan another epoch
        if latest is None or latest[0] != key:
            self._warn(number, world, config)
            self._epoch = latest = (key, self.planner.epoch(number, world, self.batch, config))
        return latest[1]

    def _warn(self, number: int, world: World, config: EpochConfig) -> None:
        if number > self.first_epoch:  # workers of the first one have warned already
            return
        if not self.varies:
            warn_about_batches(self.batch_size, world)
        warn_about_order(self.planner, config, world)

    def _check_size(self) -> None:
        if not self.planner.size:
            raise ConfigError("an epoch of the data set has no samples")

    def _epoch_config(self, world: World) -> EpochConfig:
        options, algorithm = self.options, self.planner.algorithm
        canonical_nodes = options.canonical_nodes(world.nodes, self._start.canonical_nodes)
        if options.elastic:  # more canonical nodes than samples would be empty
            canonical_nodes = max(min(canonical_nodes, self.planner.size), 1)
        return EpochConfig(
            seed=options.shuffle_seed,
            canonical_nodes=canonical_nodes,
            block_size=options.shuffle_block_size or algorithm.default_block_size(canonical_nodes),
            partition_algo=options.partition_algo,
            initial_nodes=self._start.nodes or world.nodes,
            batching_method=options.batching_method,
            initial_batch_size=self._start.batch_size or self.batch,
            micro_batches=self._micro_batches(world),
            initial_world=self._initial_world(world),
        )

    def _initial_world(self, world: World) -> World | None:
        """Return the world for which the streams are combined if batches depend on it, else None."""
        options = self.options
        if options.elastic or self.varies or options.batching_method == "random":
            return None
        return self._start.world or World(world.nodes, world.ranks_per_node)

    def _micro_batches(self, world: World) -> int:
        """Return the number of batches of a global batch over all ranks if they vary in size, else 0."""
        batches = self.planner.batches
        if batches is None:
            return 0
        return batches.micro_batches or self._start.micro_batches or world.ranks

    def _batches_per_step(self, world: World) -> int | None:
        """Return the batches of a step over all ranks if they vary in size, else None."""
        return world.ranks if self.varies else None

    def identity(self, world: World) -> state.OrderIdentity:
        """Return what determines this run's order."""
        config, planner = self._epoch_config(world), self.planner
        return state.OrderIdentity(
            size=planner.samples,
            shards=self._fingerprint.digest,
            global_batch=0 if self.varies else self.batch * world.ranks,
            epoch_size=planner.size,
            streams=planner.streams,
            shuffle_algo=self.options.used_shuffle,
            shuffle_seed=config.seed,
            shuffle_block_size=config.block_size,
            num_canonical_nodes=config.canonical_nodes,
            partition_algo=config.partition_algo,
            batching_method=config.batching_method,
            **planner.mixture.identity(),
            micro_batches=self._micro_batches(world),
            batch_budget=None if planner.batches is None else planner.batches.identity(),
            fingerprint=self._fingerprint,
        )

    def batch_in(self, after: World, before: World, done: int) -> int:
        """Return the batch size of another world with the same global batch, from a position on.

        Raises:
            ConfigError: If the ranks do not divide the global batch, or the position is within one.
        """
        size = self.units_per_global_batch(before)
        batch = _divide_global_batch(size, "batches" if self.varies else "samples", after)
        if not self.varies:
            return batch
        if done % size:
            raise ConfigError(
                f"resize() after {done} batches of an epoch, in the middle of a global batch of {size} "
                "batches: call it when all of these were read"
            )
        return self.batch

    def change_world(self, batch_size: int, before: World) -> None:
        """Set the batch size for another world than `before`; what depends on the first world stays."""
        self._start = RunStart.of(self._epoch_config(before))
        if not self.varies:
            self.batch_size = batch_size


def _divide_global_batch(size: int, unit: str, world: World) -> int:
    batch, rest = divmod(size, world.ranks)
    if rest or not batch:
        raise ConfigError(
            f"resize() to {world.ranks} ranks: the global batch of {size} {unit}, which stays "
            f"the same, is no multiple of {world.ranks}; go on with a number of ranks that divides it"
        )
    return batch
