"""The order of a data set's epochs and the current position in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from streamplug.config import whole_number
from streamplug.errors import ConfigError, StateError
from streamplug.plan import (
    Curriculum,
    DatasetFingerprint,
    Epoch,
    EpochConfig,
    Planner,
    Weight,
    state,
)
from streamplug.read import SampleReader
from streamplug.session.epoch_counter import EpochCounter, WorkerLoop, private_cells
from streamplug.session.hints import warn_about_batches, warn_about_order
from streamplug.session.order_options import OrderOptions
from streamplug.session.run_start import RunStart, positive_count
from streamplug.session.world_change import WorldChange
from streamplug.types import World

_MAX_RUN_SAMPLES = 1 << 62  # exclusive upper bound


class TrainingRun:
    """The epochs of a data set on any world, and the current position."""

    def __init__(
        self, planner: Planner, fingerprint: DatasetFingerprint, options: OrderOptions
    ) -> None:
        self.options, self.batch_size = options, options.batch_size
        self.clock = EpochCounter(private_cells())
        self._planner, self._fingerprint = planner, fingerprint
        self._start = RunStart()
        # Number of epochs started, and the epoch and step after the last batch of this process.
        self._cursor = (-1, 0, 0)
        self._epoch: tuple[object, Epoch] | None = None
        self._sets, self._events = 0, -1  # of the clock at the start of this loop; -1 in a worker
        self.in_worker = False
        self.version = 0  # number of changes of the order
        self._change: WorldChange | None = None  # with which the current loop goes on
        self.num_changes, self.loop_epoch = 0, -1  # changes of the world before it, and its epoch

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
        if self.batch_size is None:
            raise ConfigError("no batch size: give it here, or as batch_size= of the data set")

    def length(self, world: World) -> int:
        """Return the number of samples of a rank in an epoch."""
        self._check_size()
        return self._planner.length(world, self.batch, self._epoch_config(world))

    def epoch(self, number: int, world: World) -> Epoch:
        """Return the plan of an epoch."""
        self._check_size()
        config = self._epoch_config(world)
        elastic = self.options.elastic
        ranks = (
            self.batch * world.ranks if elastic else (self.batch, world.nodes, world.ranks_per_node)
        )
        key = (number, ranks, config, self._planner.mixture)
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
        )

    def identity(self, world: World) -> state.OrderIdentity:
        """Return what determines this run's order."""
        config, planner = self._epoch_config(world), self._planner
        return state.OrderIdentity(
            size=planner.samples,
            shards=self._fingerprint.digest,
            global_batch=self.batch * world.ranks,
            epoch_size=planner.size,
            streams=planner.streams,
            shuffle_algo=self.options.used_shuffle,
            shuffle_seed=config.seed,
            shuffle_block_size=config.block_size,
            num_canonical_nodes=config.canonical_nodes,
            partition_algo=config.partition_algo,
            batching_method=config.batching_method,
            **planner.mixture.identity(),
            fingerprint=self._fingerprint,
        )

    def start_epoch(self, loop: WorkerLoop, change: WorldChange | None = None) -> tuple[int, int]:
        """Start an epoch, see `EpochCounter.begin`; return it and its first step in the world of `change`."""
        if self.clock.version != self.version:
            raise ConfigError(
                "another state or other proportions were set on the data set, which persistent "
                "workers do not see; create a new DataLoader, or use StreamingDataLoader"
            )
        resumes, self._change = self._change is not None, None
        if resumes and change is not None:
            epoch, step = change.epoch, change.step
        else:
            epoch, step = self.clock.begin(loop)
            if change is not None and change.epoch == epoch:  # this worker of the loop started late
                step = change.step
        self.num_changes = 0 if change is None else change.number
        self._cursor, self.loop_epoch = (self.clock.begun(), epoch, step), epoch
        self.in_worker = bool(loop.ticket)
        self._sets, self._events = self.clock.sets, -1 if self.in_worker else self.clock.events
        return epoch, step

    def set_position(self, epoch: int, step: int) -> None:
        """Set the position of this process: everything before `step` was yielded."""
        if self._events not in (-1, self.clock.events):
            self.check_sets(self._sets)
            raise ConfigError(
                "this loop cannot follow resize(); leave it before, and start another"
            )
        self._cursor = (self._cursor[0], epoch, step)

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and step after the batch yielded last by this process or its loader."""
        return self._cursor[1:]

    def set_loader_position(self, epoch: int, step: int) -> None:
        """Set the position of a loader, whose workers may be ahead."""
        self._cursor = (self._cursor[0], epoch, step)

    def world_change(self) -> WorldChange | None:
        """Return the change of the world since the current loop began or went on; None without."""
        if self.clock.changes == self.num_changes:
            return None
        change = self.clock.change
        return change if change and 0 <= change.epoch == self.loop_epoch else None

    def latest_change(self) -> WorldChange | None:
        """Return the change of the world that the next start of an epoch is to follow; None without."""
        latest, resumed = self.clock.change, self._change
        # There may be a newer one than that with which the loop goes on, or half of one.
        is_newer = resumed is None or (latest is not None and latest.epoch == resumed.epoch)
        return latest if is_newer else resumed

    def resume_loop(self, change: WorldChange) -> None:
        """Let the next start of an epoch go on with the current loop, in the world of `change`."""
        self._change = change

    def change_batch_size(self, batch_size: int, before: World) -> None:
        """Set the batch size for another world than `before`; what depends on the first world stays."""
        config = self._epoch_config(before)
        self._start = RunStart.of(config)
        self.batch_size = batch_size

    def follow_trainer(self, epoch: int, world: World) -> None:
        """Go to the epoch of a trainer if the run is new, or to the next one at the end of an epoch."""
        epoch = whole_number("epoch", epoch, 0)
        next_epoch, first = self.clock.next()
        if epoch == next_epoch:
            return
        if (next_epoch, first) == (0, 0):
            self._continue(epoch, 0, changed=False)
        elif self._is_over(first, world):
            self._continue(next_epoch + 1, 0, changed=False)

    def _is_over(self, step: int, world: World) -> bool:
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
        position = self.loop_position()
        return self.next_state(world) if position is None else self.state_at(world, *position)

    def loop_position(self) -> tuple[int, int] | None:
        """Return the epoch and the step after the batch yielded last; None if no epoch was started.

        Raises:
            StateError: If loader workers have read since, or this process is one.
        """
        begun, epoch, step = self._cursor
        if self.clock.begun() == 0:
            return None
        if self.in_worker or self.clock.begun() != begun:
            raise StateError(
                "the data set was read by loader workers, which may be ahead of the training loop; use "
                "StreamingDataLoader.state_dict() and resize(), or pass num_samples= to state_dict()"
            )
        return epoch, step

    def state_after(self, samples: int, world: World, *, from_beginning: bool) -> dict[str, Any]:
        """Return the state after `samples` of the current epoch, counted over all ranks.

        With 0 samples after the end of an epoch, return the start of the next one.
        """
        global_batch = self.batch * world.ranks
        epoch, first = self.clock.current()
        _, own_epoch, own_step = self._cursor
        is_over = own_epoch > epoch or (own_epoch == epoch and self._is_over(own_step, world))
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
            self.identity(world), epoch, step, config.initial_nodes, initial_batch_size
        )
        if isinstance(self._planner.mixture, Curriculum):
            run_step = self._step_of_run(world, epoch, step)
            saved["curriculum"] = self._planner.mixture.changes_until(run_step)
        return saved

    def _step_of_run(self, world: World, epoch: int, step: int) -> int:
        return epoch * -(-self._planner.size // (self.batch * world.ranks)) + step

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        before, order = (self._start, self.batch_size), self._order(world)
        # Options that were not given are taken from the state.
        self._start = RunStart.from_state(saved)
        batch = positive_count(saved, "global_batch")
        if self.batch_size is None and batch and batch % world.ranks == 0:
            self.batch_size = batch // world.ranks
        try:
            epoch, step = state.load(saved, self.identity(world))
            self._check_position(saved, epoch, step, world)
            if isinstance(self._planner.mixture, Curriculum):
                run_step = self._step_of_run(world, epoch, step)
                self._planner.mixture = self._planner.mixture.resume(saved, run_step)
        except BaseException:
            self._start, self.batch_size = before
            raise
        self._continue(epoch, step, changed=self._order(world) != order)

    def _check_position(
        self, saved: Mapping[str, Any], epoch: int, step: int, world: World
    ) -> None:
        size, total = self._planner.size, self.batch * world.ranks
        # Each stream may pad a batch of its own, and ranks may repeat some.
        steps = -(-size // total) + len(self._planner.streams) + world.ranks
        if not self.options.elastic:
            # Each canonical node of a stream may be padded for any world with at most as many ranks as a
            # batch has samples.
            steps += 3 * self._epoch_config(world).canonical_nodes * len(self._planner.streams)
        if step > steps or (epoch + 1) * (size + steps * total) >= _MAX_RUN_SAMPLES:
            raise StateError(
                f"the state is at epoch {epoch}, sample {saved['sample_in_epoch']}; "
                f"an epoch has {size} samples"
            )

    def set_proportions(self, proportions: Sequence[float], world: World) -> None:
        """Change the proportions of the streams from the next step on."""
        if not isinstance(self._planner.mixture, Curriculum):
            raise ConfigError("begin the run with curriculum= to change the streams' proportions")
        epoch, step = self.clock.next()
        run_step = self._step_of_run(world, epoch, step)
        self._planner.mixture = self._planner.mixture.with_change(run_step, proportions)
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
) -> TrainingRun:
    """Return the run over the streams that `reader` reads, which have these weights."""
    starts, shards = reader.starts, reader.stream_shards
    sizes = [int(starts[last] - starts[first]) for first, last in pairwise(shards)]
    planner = Planner(
        starts,
        shards,
        options.mixture(weights, sizes),
        options.shuffle_algorithm(),
        options.partition_algorithm(),
        shuffled=options.shuffle,
    )
    return TrainingRun(planner, fingerprint, options)
