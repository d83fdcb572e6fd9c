"""The order of a data set's epochs and the current position in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError, StateError
from streamplug.plan import (
    BatchPlanner,
    DatasetFingerprint,
    Epoch,
    EpochConfig,
    Mixture,
    Planner,
    Weight,
    change_mixture,
    resume_mixture,
    state,
)
from streamplug.read import SampleReader
from streamplug.session.epoch_counter import EpochCounter, WorkerLoop, private_cells
from streamplug.session.hints import warn_about_batches, warn_about_order
from streamplug.session.order_options import OrderOptions
from streamplug.session.run_start import RunStart, positive_count
from streamplug.types import Int64, World

_MAX_RUN_SAMPLES = 1 << 62  # exclusive upper bound


class TrainingRun:
    """The epochs of a data set on any world, and the current position."""

    def __init__(
        self, planner: Planner, fingerprint: DatasetFingerprint, options: OrderOptions
    ) -> None:
        self.options, self.batch_size = options, options.batch_size
        self.clock = EpochCounter(private_cells())
        self._planner, self._fingerprint = planner, fingerprint
        self._initial_mixture = planner.mixture
        self._start = RunStart()
        # Number of epochs started, and the epoch and step after the last batch of this process.
        self._cursor = (-1, 0, 0)
        self._epoch: tuple[object, Epoch] | None = None
        self._sets: int | None = None
        self._in_worker = False
        self.version = 0  # number of changes of the order
        self.completed_steps = 0  # by this process, over all epochs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": None}

    def with_options(self, **changes: Any) -> TrainingRun:
        """Return a new run over the same streams with changed `OrderOptions`."""
        options = replace(self.options, **changes)
        planner = replace(
            self._planner,
            algorithm=options.shuffle_algorithm(),
            partition_algorithm=options.partition_algorithm(),
            shuffled=options.shuffle,
            mixture=self._initial_mixture,
        )
        return TrainingRun(planner, self._fingerprint, options)

    @property
    def initial_nodes(self) -> int | None:
        """Number of nodes with which the run began, from the loaded state; None without."""
        return self._start.nodes

    @property
    def planner(self) -> Planner:
        """Planner of the epochs."""
        return self._planner

    @property
    def epoch_size(self) -> int:
        """Number of samples of an epoch over all ranks, before padding."""
        return self._planner.size

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; 1 without a batch size."""
        return self.batch_size or 1

    def use_batch_size(self, batch_size: int | None) -> None:
        """Set the batch size to the loader's, or check that both are equal."""
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
        return self._planner.batches is not None

    def global_step(self, step: int, world: World) -> int:
        """Return the number of the global batch of a step; batches that vary may take several steps."""
        return step * world.ranks // self._global_batch(world) if self.varies else step

    def steps_of_global_batch(self, step: int, world: World) -> Int64:
        """Return all steps of the global batch that a step is of."""
        count = self._global_batch(world) // world.ranks if self.varies else 1
        return np.arange(step - step % count, step - step % count + count)

    def steps(self, world: World) -> int:
        """Return the number of steps of the next epoch."""
        return self.epoch(self.clock.next()[0], world).steps

    def length(self, world: World) -> int:
        """Return the number of samples of a rank in an epoch, approximately if batches vary in size."""
        self._check_size()
        return self._planner.length(world, self.batch, self._epoch_config(world))

    def epoch(self, number: int, world: World) -> Epoch:
        """Return the plan of an epoch."""
        self._check_size()
        config = self._epoch_config(world)
        key = (number, world.nodes, world.ranks_per_node, self._order(world))
        if self._epoch is None or self._epoch[0] != key:
            self._warn(world, config)
            self._epoch = (key, self._planner.epoch(number, world, self.batch, config))
        return self._epoch[1]

    def _warn(self, world: World, config: EpochConfig) -> None:
        if self.clock.begun() > 1:  # workers of the first epoch have warned already
            return
        # Only some shuffles use blocks; an explicit block size indicates one that does.
        shuffle, blocks = self.options.used_shuffle, self.options.shuffle_block_size is not None
        blocks = shuffle == "window" or (blocks and shuffle != "global")
        if not self.varies:
            warn_about_batches(self.batch_size, world)
        warn_about_order(
            shuffle=shuffle,
            block=config.block_size if blocks else None,
            canonical_nodes=config.canonical_nodes,
            samples=self._planner.samples,
            shards=self._planner.shards,
            world=world,
        )

    def _check_size(self) -> None:
        if not self._planner.size:
            raise ConfigError("an epoch of the data set has no samples")

    def _epoch_config(self, world: World) -> EpochConfig:
        options, algorithm = self.options, self._planner.algorithm
        canonical_nodes = options.canonical_nodes(world.nodes, self._start.canonical_nodes)
        if options.elastic:  # more canonical nodes than samples would be empty
            canonical_nodes = max(min(canonical_nodes, self._planner.size), 1)
        return EpochConfig(
            seed=options.shuffle_seed,
            canonical_nodes=canonical_nodes,
            block_size=options.shuffle_block_size or algorithm.default_block_size(canonical_nodes),
            partition_algo=options.partition_algo,
            initial_nodes=self._start.nodes or world.nodes,
            batching_method=options.batching_method,
            initial_batch_size=self._start.batch_size or self.batch,
            global_batch=self._global_batch(world),
        )

    def _global_batch(self, world: World) -> int:
        """Return the samples of a global batch, or its batches if these vary in size."""
        batches = self._planner.batches
        if batches is None:
            return self.batch * world.ranks
        return batches.global_batch or self._start.global_batch or world.ranks

    def _batches_per_step(self, world: World) -> int | None:
        """Return the batches of a step over all ranks if they vary in size, else None."""
        return world.ranks if self.varies else None

    def identity(self, world: World) -> state.OrderIdentity:
        """Return what determines this run's order."""
        config, planner = self._epoch_config(world), self._planner
        return state.OrderIdentity(
            size=planner.samples,
            shards=self._fingerprint.digest,
            global_batch=config.global_batch,
            epoch_size=planner.size,
            streams=planner.streams,
            shuffle_algo=self.options.used_shuffle,
            shuffle_seed=config.seed,
            shuffle_block_size=config.block_size,
            num_canonical_nodes=config.canonical_nodes,
            partition_algo=config.partition_algo,
            batching_method=config.batching_method,
            **planner.mixture.identity(),
            batch_budget=None if planner.batches is None else planner.batches.identity(),
            fingerprint=self._fingerprint,
        )

    def start_epoch(self, loop: WorkerLoop) -> tuple[int, int]:
        """Start an epoch, see `EpochCounter.begin`; return it and its first step."""
        if self.clock.version != self.version:
            raise ConfigError(
                "another state or other proportions were set on the data set, which persistent "
                "workers do not see; create a new DataLoader, or use StreamingDataLoader"
            )
        epoch, step = self.clock.begin(loop)
        self._cursor = (self.clock.begun(), epoch, step)
        self._in_worker = bool(loop.ticket)
        self._sets = None if self._in_worker else self.clock.sets
        return epoch, step

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and step after the last batch of this process."""
        return self._cursor[1:]

    def set_position(self, epoch: int, step: int) -> None:
        """Set the position of this process: everything before `step` was yielded."""
        if self._sets is not None:
            self.check_sets(self._sets)
        self._cursor = (self._cursor[0], epoch, step)
        self.completed_steps += 1

    def set_loader_position(self, epoch: int, step: int) -> None:
        """Set the position of a loader, whose workers may be ahead."""
        self._cursor = (self._cursor[0], epoch, step)

    def follow_trainer(self, epoch: int, world: World) -> None:
        """Go to the epoch of a trainer if the run is new, or to the next one at the end of an epoch."""
        epoch = whole_number("epoch", epoch, 0)
        next_epoch, first = self.clock.next()
        if epoch == next_epoch:
            return
        if (next_epoch, first) == (0, 0):
            self._continue(epoch, 0, changed=False)
        elif self._is_over(next_epoch, first, world):
            self._continue(next_epoch + 1, 0, changed=False)

    def _is_over(self, epoch: int, step: int, world: World) -> bool:
        if self.varies:
            return step > 0 and step >= self.epoch(epoch, world).steps
        return step > 0 and step * self.batch >= self.length(world)

    def check_sets(self, sets: int) -> None:
        """Raise `ConfigError` if the clock was set since it had been set `sets` times."""
        if self.clock.sets != sets:
            raise ConfigError(
                "a state or other proportions were set on the data set while it was being read; leave "
                "the loop and start another"
            )

    def state(self, world: World) -> dict[str, Any]:
        """Return the state at the position of this process.

        Raises:
            StateError: If loader workers have read since, or this process is one.
        """
        begun, epoch, step = self._cursor
        if self.clock.begun() == 0:
            return self.next_state(world)
        if self._in_worker or self.clock.begun() != begun:
            raise StateError(
                "the data set was read by loader workers, which may be ahead of the training loop; "
                "use StreamingDataLoader.state_dict(), or pass num_samples="
            )
        return self.state_at(world, epoch, step)

    def state_after(self, samples: int, world: World, *, from_beginning: bool) -> dict[str, Any]:
        """Return the state after `samples` of the current epoch, counted over all ranks.

        With 0 samples after the end of an epoch, return the start of the next one.
        """
        if self.varies:
            raise StateError(
                "num_samples= of batches that vary in size: use state_dict() of the data set or the loader"
            )
        global_batch = self.batch * world.ranks
        epoch, first = self.clock.current()
        _, own_epoch, own_step = self._cursor
        is_over = own_epoch > epoch or (
            own_epoch == epoch and self._is_over(epoch, own_step, world)
        )
        if not samples and is_over:
            epoch, first = epoch + 1, 0
        steps, rest = divmod(samples, global_batch)
        if rest or samples < 0:
            raise StateError(
                f"num_samples={samples} is not a multiple of the global batch size {global_batch}; a state "
                "exists only between global batches"
            )
        return self.state_at(world, epoch, int(steps) + (0 if from_beginning else first))

    def next_state(self, world: World) -> dict[str, Any]:
        """Return the state before the next epoch."""
        return self.state_at(world, *self.clock.next())

    def state_at(self, world: World, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step."""
        config = self._epoch_config(world)
        initial_batch_size = (
            config.initial_batch_size if config.batching_method == "device_per_stream" else None
        )
        saved = state.save(
            self.identity(world),
            epoch,
            step,
            config.initial_nodes,
            initial_batch_size,
            units_per_step=self._batches_per_step(world),
        )
        batches, mixture = self._planner.batches, self._planner.mixture
        if batches is not None:  # for tools that open the data set by a state
            saved["batch_options"] = batches.options()
        if isinstance(mixture, Mixture):
            return {**saved, "curriculum_changes": 0}
        changes = mixture.changes_until(self._step_of_run(world, epoch, step))
        past = {"curriculum": changes} if changes else {}
        return {**saved, "curriculum_changes": len(changes), **past}

    def _step_of_run(self, world: World, epoch: int, step: int) -> int:
        length = self._planner.length(world, self.batch, self._epoch_config(world))
        return epoch * (length // self.batch) + step

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        before, order = (self._start, self.batch_size), self._order(world)
        # Options that were not given are taken from the state.
        self._start = RunStart.from_state(saved)
        batch = positive_count(saved, "global_batch")
        if self.batch_size is None and not self.varies and batch and batch % world.ranks == 0:
            self.batch_size = batch // world.ranks
        try:
            epoch, step = state.load(
                saved, self.identity(world), units_per_step=self._batches_per_step(world)
            )
            self._check_position(epoch, step, world)
            if self.options.elastic and not self.varies:  # others have no changes
                self._planner.mixture = resume_mixture(
                    self._initial_mixture,
                    saved,
                    self._planner.streams,
                    self._step_of_run(world, epoch, step),
                )
        except BaseException:
            self._start, self.batch_size = before
            raise
        self._continue(epoch, step, changed=self._order(world) != order)

    def _check_position(self, epoch: int, step: int, world: World) -> None:
        size, total = self._planner.size, self._batches_per_step(world) or self.batch * world.ranks
        # Each stream may pad a batch of its own, and ranks may repeat some.
        steps = -(-size // total) + len(self._planner.streams) + world.ranks
        if not self.options.elastic:
            # Each canonical node of a stream may be padded for any world with at most as many ranks as a
            # batch has samples.
            steps += 3 * self._epoch_config(world).canonical_nodes * len(self._planner.streams)
        if step > steps or (epoch + 1) * (size + steps * total) >= _MAX_RUN_SAMPLES:
            raise StateError(
                f"the state is at epoch {epoch}, step {step}; an epoch has {size} samples"
            )

    def set_proportions(self, proportions: Sequence[float], world: World) -> None:
        """Change the proportions of the streams from the next step on."""
        if not self.options.elastic:
            raise ConfigError(
                f"set_proportions: partition_algo={self.options.partition_algo!r}: needs 'elastic'"
            )
        if self.varies:
            raise ConfigError(
                f"set_proportions: batching_method={self.options.batching_method!r}: how many samples a step "
                "has depends on their costs; begin another run with other proportions"
            )
        epoch, step = self.clock.next()
        run_step, planner = self._step_of_run(world, epoch, step), self._planner
        planner.mixture = change_mixture(planner.mixture, planner.streams, run_step, proportions)
        self._continue(epoch, step, changed=True)

    def _order(self, world: World) -> tuple[object, ...]:
        return self.batch_size, self._epoch_config(world), self._planner.mixture

    def _continue(self, epoch: int, step: int, *, changed: bool) -> None:
        self.version += changed
        self._cursor = (-1, 0, 0)
        self.clock.set(epoch, step, self.version)


def make_run(
    options: OrderOptions,
    weights: Sequence[Weight],
    reader: SampleReader,
    fingerprint: DatasetFingerprint,
    batches: BatchPlanner | None,
) -> TrainingRun:
    """Return the run over the streams that `reader` reads, which have these weights.

    `batches` plans them if a plugin composes them.
    """
    starts, shards = reader.starts, reader.stream_shards
    sizes = [int(starts[last] - starts[first]) for first, last in pairwise(shards)]
    planner = Planner(
        starts,
        shards,
        options.mixture(weights, sizes),
        options.shuffle_algorithm(),
        options.partition_algorithm(),
        shuffled=options.shuffle,
        batches=batches,
    )
    return TrainingRun(planner, fingerprint, options)
