"""The order of a data set's epochs and the current position in it."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamplug.config import check_flags, whole_number
from streamplug.errors import ConfigError, StateError, prefix_errors
from streamplug.plan import (
    BatchPlanner,
    Curriculum,
    DatasetFingerprint,
    Mixture,
    Planner,
    StreamMixture,
    Weight,
    change_mixture,
    keep_first_changes,
    resume_mixture,
    state,
)
from streamplug.read import SampleReader
from streamplug.session.epoch_counter import WorkerLoop
from streamplug.session.order_options import OrderOptions
from streamplug.session.run_order import RunOrder
from streamplug.session.run_start import RunStart, positive_count
from streamplug.session.world_change import WorldChange
from streamplug.types import World

if TYPE_CHECKING:
    from streamplug.session.sample_source import Block

_MAX_RUN_SAMPLES = 1 << 62  # exclusive upper bound

RESIZE_ERROR = "this loop cannot follow resize(); leave it before, and start another"


class TrainingRun(RunOrder):
    """The epochs of a data set on any world, and the current position."""

    def __init__(
        self, planner: Planner, fingerprint: DatasetFingerprint, options: OrderOptions
    ) -> None:
        super().__init__(planner, fingerprint, options)
        self._initial_mixture = planner.mixture
        # Number of epochs started, and the epoch and step after the last batch of this process.
        self._cursor = (-1, 0, 0)
        self._sets, self._events = 0, -1  # of the clock at the start of this loop; -1 in a worker
        self.in_worker = False
        self.version = 0  # number of changes of the order
        self.completed_steps = 0  # by this process, over all epochs
        self._change: WorldChange | None = None  # with which the current loop goes on
        self.num_changes, self.loop_epoch = 0, -1  # changes of the world before it, and its epoch
        self.loop_start = -1, 0  # epoch and first step of the current loop
        # Epoch of the trainer: the latest one that it named, and that of the position of this process.
        self._trainer_epoch: int | None = None
        self._trainer_epoch_at_position: int | None = None

    def with_options(self, **changes: Any) -> TrainingRun:
        """Return a new run over the same streams with changed `OrderOptions`."""
        options = replace(self.options, **changes)
        planner = replace(
            self.planner,
            algorithm=options.shuffle_algorithm(),
            partition_algorithm=options.partition_algorithm(),
            shuffled=options.shuffle,
            mixture=self._initial_mixture,
        )
        return TrainingRun(planner, self._fingerprint, options)

    def steps(self, world: World) -> int:
        """Return the number of steps of the next epoch."""
        return self.epoch(self.clock.next()[0], world).steps

    def start_epoch(self, loop: WorkerLoop, change: WorldChange | None) -> tuple[int, int]:
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
        self.loop_start, self.in_worker = (epoch, step), bool(loop.ticket)
        self._sets, self._events = self.clock.sets, -1 if self.in_worker else self.clock.events
        return epoch, step

    def set_position(self, epoch: int, step: int, block: Block | None = None) -> None:
        """Set the position of this process: all before `step` was yielded, the latest batch from `block`."""
        if self._events not in (-1, self.clock.events):
            self.check_sets(self._sets)
            raise ConfigError(RESIZE_ERROR)
        if block is not None:
            # Of a loop that was started before the latest one.
            if block.sets is not None and block.sets != self._sets:
                self.check_sets(block.sets)
            block.next_step = step
        self.set_loader_position(epoch, step)
        self.completed_steps += 1

    @property
    def position(self) -> tuple[int, int]:
        """Epoch and step after the batch yielded last by this process or its loader."""
        return self._cursor[1:]

    def set_loader_position(self, epoch: int, step: int) -> None:
        """Set the position of a loader, whose workers may be ahead."""
        self._cursor = (self._cursor[0], epoch, step)
        self._trainer_epoch_at_position = self._trainer_epoch

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

    def follow_trainer(self, epoch: int, world: World) -> None:
        """Go to the epoch of a trainer if the run is new, or to the next one after the trainer's last one.

        That is at the end of an epoch, and within one if the loaded state is of an earlier epoch of the
        trainer: it had ended its epoch there. An earlier number is of a trainer that counts anew.
        """
        epoch = self._trainer_epoch = whole_number("epoch", epoch, 0) or 0
        before = self._trainer_epoch_at_position
        next_epoch, first = self.clock.next()
        if (next_epoch, first) == (0, 0):
            if epoch:
                self._continue(epoch, 0, changed=False)
        elif (first and before is not None and epoch > before) or (
            epoch != next_epoch and self._is_over(next_epoch, first, world)
        ):
            self._continue(next_epoch + 1, 0, changed=False)

    def set_first_step(self, step: int) -> None:
        """Let the next epoch begin with another step."""
        self._continue(self.clock.next()[0], step, changed=False)

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
        position = self.loop_position()
        return self.next_state(world) if position is None else self.state_of_loop(world, *position)

    def state_of_loop(self, world: World, epoch: int, step: int) -> dict[str, Any]:
        """Return the state before a step, with the epoch of the trainer that the latest batch was of."""
        return self.state_at(world, epoch, step, self._trainer_epoch_at_position)

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
        check_flags(from_beginning=from_beginning)
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
        step = int(steps) + (0 if from_beginning else first)
        with prefix_errors(f"num_samples={samples}", StateError):  # which could not be loaded
            self._check_position(epoch, step, world)
        return self.state_at(world, epoch, step, self._trainer_epoch)

    def next_state(self, world: World) -> dict[str, Any]:
        """Return the state before the next epoch, or before the step that the next one begins with."""
        return self.state_of_loop(world, *self.clock.next())

    def state_at(
        self, world: World, epoch: int, step: int, trainer_epoch: int | None = None
    ) -> dict[str, Any]:
        """Return the state before a step, which a trainer reached in its epoch `trainer_epoch`."""
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
            initial_world=config.initial_world,
            batches_per_step=self._batches_per_step(world),
        )
        if step > 0 and trainer_epoch is not None:
            saved["trainer_epoch"] = trainer_epoch
        batches, mixture = self.planner.batches, self.planner.mixture
        if batches is not None:  # for tools that open the data set by a state
            saved["batch_options"] = batches.options()
        if isinstance(mixture, Mixture):
            return {**saved, "curriculum_changes": 0}
        changes = mixture.changes_until(self._step_of_run(world, epoch, step, mixture))
        past = {"curriculum": changes} if changes else {}
        return {**saved, "curriculum_changes": len(changes), **past}

    def _step_of_run(
        self, world: World, epoch: int, step: int, mixture: StreamMixture, *, exact: bool = False
    ) -> int:
        """Return the global batches of the run before a step, or more than the step of any change."""
        planner, config = replace(self.planner, mixture=mixture), self._epoch_config(world)
        epochs = planner.curriculum_epochs(config)
        if epochs is None:
            return epoch * (planner.length(world, self.batch, config) // self.batch) + step
        mixtures = (mixture, self._initial_mixture)
        last = max(m.changes[-1].step for m in mixtures if isinstance(m, Curriculum))
        before = epochs.steps_before(epoch, _MAX_RUN_SAMPLES if exact else last)
        return before + self.global_step(step, world)

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        if saved.get("parts") or saved.get("loader"):  # a data set would repeat samples
            raise StateError(
                "the state is in the middle of batches of a pipeline: load it into that pipeline or its "
                "WebLoader, or save it at the end of an epoch"
            )
        before, order = (self._start, self.batch_size), self._order(world)
        # Options that were not given are taken from the state.
        self._start = RunStart.from_state(saved)
        batch = positive_count(saved, "global_batch")
        if self.batch_size is None and not self.varies and batch and batch % world.ranks == 0:
            self.batch_size = batch // world.ranks
        try:
            epoch, step = state.load(
                saved, self.identity(world), batches_per_step=self._batches_per_step(world)
            )
            self._check_position(epoch, step, world)
            trainer_epoch = state.read_trainer_epoch(saved)
            # States without a version are of mosaicml-streaming, which makes batches for each world anew.
            if saved.get("version") is not None:
                self._check_start(saved, world)
            if self.options.elastic and not (
                self.varies and isinstance(self._initial_mixture, Mixture)
            ):
                self.planner.mixture = resume_mixture(
                    self._initial_mixture,
                    saved,
                    self.planner.streams,
                    partial(self._step_of_run, world, epoch, step),
                    within_step=step != self.steps_of_global_batch(step, world)[0],
                )
        except BaseException:
            self._start, self.batch_size = before
            raise
        self._continue(epoch, step, changed=self._order(world) != order)
        self._trainer_epoch = self._trainer_epoch_at_position = trainer_epoch

    def _check_start(self, saved: Mapping[str, Any], world: World) -> None:
        """Raise `StateError` if a state lacks what its batches depend on, which would be that of `world`."""
        start, per_device = self._start, self.options.batching_method == "device_per_stream"
        if start.world is None and self._initial_world(world) is not None:
            key, expected = "initial_world", "numbers of nodes and of ranks per node"
        elif per_device and (
            start.batch_size is None or self.batch * world.ranks % start.batch_size
        ):
            key, expected = "initial_batch_size", "number of samples per batch of a rank"
        else:
            return
        raise StateError(
            f"the state has {key}={reprlib.repr(saved.get(key))}; expected the {expected} for which its "
            "batches were made: the state is truncated, was changed, or was saved by an earlier version"
        )

    def _check_position(self, epoch: int, step: int, world: World) -> None:
        size, total = self.planner.size, self._batches_per_step(world) or self.batch * world.ranks
        # Each stream may pad a batch of its own, and ranks may repeat some.
        steps = -(-size // total) + len(self.planner.streams) + world.ranks
        if self.varies:  # the last global batch may be completed
            steps += len(self.steps_of_global_batch(0, world))
        if not self.options.elastic:
            # Each canonical node of a stream may be padded for any world with at most as many ranks as a
            # batch has samples.
            steps += 3 * self._epoch_config(world).canonical_nodes * len(self.planner.streams)
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
        planner = self.planner
        if self.varies and isinstance(planner.mixture, Mixture):
            raise ConfigError(
                f"set_proportions: batching_method={self.options.batching_method!r}: begin the run with a "
                "curriculum=, such as {0: [...]}"
            )
        epoch, step = self.clock.next()
        if step != self.steps_of_global_batch(step, world)[0]:
            raise ConfigError(
                f"set_proportions before step {step} of {world.ranks} ranks, in the middle of a global batch "
                f"of {self._micro_batches(world)} batches: call it when all of these were read"
            )
        run_step = self._step_of_run(world, epoch, step, planner.mixture, exact=True)
        planner.mixture = change_mixture(planner.mixture, planner.streams, run_step, proportions)
        self._continue(epoch, step, changed=True)

    def count_changes_by_hand(self, world: World, epoch: int, step: int) -> int:
        """Return the number of calls of `set_proportions` that a state before a step knows of."""
        changes = self.state_at(world, epoch, step).get("curriculum", [])
        return sum("by_hand" in change for change in changes)

    def keep_changes_by_hand(self, count: int) -> None:
        """Drop all calls of `set_proportions` but the first `count`."""
        planner = self.planner
        planner.mixture = keep_first_changes(
            planner.mixture, self._initial_mixture, planner.streams, count
        )

    def _order(self, world: World) -> tuple[object, ...]:
        return self.batch_size, self._epoch_config(world), self.planner.mixture

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
