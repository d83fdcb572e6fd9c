"""What all loops over a data set have in common: the order of its epochs, and where the next loop begins."""

from __future__ import annotations

import logging
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import RLock
from typing import Any
from weakref import WeakSet

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
from streamplug.run.loop import Loop, ended_error
from streamplug.run.order_options import OrderOptions
from streamplug.run.position import Position
from streamplug.run.run_order import RunOrder
from streamplug.run.run_start import RunStart, positive_count
from streamplug.run.shared_epoch import SharedEpoch, WorkerLoop, private_cells
from streamplug.types import World

_LOG = logging.getLogger("streamplug")
_MAX_RUN_SAMPLES = 1 << 62  # exclusive upper bound


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """What of a run may have changed since its data set was made, for those that read for its loops.

    Attributes:
        world: Place of the rank, not merged with its replicas.
    """

    batch_size: int | None
    start: RunStart
    mixture: StreamMixture
    world: World


class Run(RunOrder):
    """The order of a data set's epochs, the loops over them, and where the next one begins.

    Loops are independent: each owns its position. The next one begins an epoch after that of the loop that
    was advanced last, whose position is also that of the state.

    Attributes:
        start: Where the first loop begins since the position was set.
        latest: The loop that was advanced last; None if the position was set since.
        version: Number of changes that loops have to follow, or that end them.
        num_resizes: Number of these that were changes of the world.
        num_loops: Number of loops that were started in this process.
        trainer_epoch: Number of the epoch that the trainer named last; None without.
        shared: Tells workers of torch's own loader, if there are any, where their loops begin.
    """

    def __init__(
        self, planner: Planner, fingerprint: DatasetFingerprint, options: OrderOptions
    ) -> None:
        super().__init__(planner, fingerprint, options)
        self._initial_mixture = planner.mixture
        self.start, self.version, self.num_resizes, self.num_loops = Position(), 0, 0, 0
        self.trainer_epoch: int | None = None
        self._start_trainer_epoch: int | None = None  # that of `start`
        self.shared = SharedEpoch(private_cells())
        self._forget_loops()

    def _forget_loops(self) -> None:
        self.latest: Loop | None = None
        self._running: WeakSet[Loop] = WeakSet()
        self._has_warned = False
        self._reason = ""  # of the latest change
        self._in_worker = False

    def __getstate__(self) -> dict[str, Any]:
        own = ("latest", "_running", "shared")
        saved = {k: v for k, v in super().__getstate__().items() if k not in own}
        return {**saved, "start": self.next()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.shared = SharedEpoch(private_cells())
        self._forget_loops()

    def with_options(self, **changes: Any) -> Run:
        """Return a new run over the same streams with changed `OrderOptions`."""
        options = replace(self.options, **changes)
        planner = replace(
            self.planner,
            algorithm=options.shuffle_algorithm(),
            partition_algorithm=options.partition_algorithm(),
            shuffled=options.shuffle,
            mixture=self._initial_mixture,
        )
        return Run(planner, self._fingerprint, options)

    # -- loops -----------------------------------------------------------------------

    def next(self) -> Position:
        """Return where the next loop begins."""
        return self.shared.next() if self._read_by_others() else self._own_next()

    def _own_next(self) -> Position:
        return self.start if self.latest is None else Position(self.latest.epoch + 1)

    def current(self) -> Position:
        """Return where the loop began that was started last; without one, where the next one does."""
        if self._read_by_others():
            return self.shared.current()
        return self.start if self.latest is None else self.latest.origin

    def steps(self, world: World) -> int:
        """Return the number of steps of the next epoch."""
        return self.epoch(self.next().epoch, world).steps

    @property
    def num_jumps(self) -> int:
        """Number of times that a position or other proportions were set."""
        return self.version - self.num_resizes

    def check_jumps(self, num_jumps: int) -> None:
        """Raise `ConfigError` if a position or proportions were set since `num_jumps` had this value."""
        if self.num_jumps != num_jumps:
            self.raise_ended()

    def begin(self, worker: WorkerLoop, world: World) -> Loop:
        """Start a loop; in a worker of torch's own loader, the part of it that the worker reads."""
        with _beginning:  # as another thread may start a loop over the same data set
            self.num_loops += 1
            if worker.ticket:
                self._in_worker = True
                position, number = self.shared.begin(worker)
                number = (self.shared.sets << 32 | number) << 1 | 1
            else:
                position, number = self.next(), self.num_loops << 1
                self.shared.tell(position)
                self.shared.begin()
            loop = Loop(self, position, self.units_per_step(world), number)
            self.latest, loop.before = loop, self.latest
            self._running.add(loop)
        return loop

    def undo(self, loop: Loop) -> None:
        """Take back the start of a loop that has handed out nothing."""
        with _beginning:
            if self.latest is loop and not self._in_worker:
                self.latest = loop.before
                self.shared.tell(self.next())

    def follow(self, loop: Loop) -> None:
        """Take a loop for the one that was advanced last."""
        with _beginning:
            self.latest = loop
            if not self._in_worker:
                self.shared.tell(self.next())

    def end(self, loop: Loop) -> None:
        """Note that a loop hands out nothing more."""
        with _beginning:
            self._running.discard(loop)

    def raise_ended(self) -> None:
        """Raise the error of a loop that cannot follow the latest change.

        Raises:
            ConfigError: Always.
        """
        raise ended_error(self._reason)

    def _read_by_others(self) -> bool:
        """Return whether workers of torch's own loader, or other processes, have started loops meanwhile."""
        with _beginning:  # another thread may have begun a loop, and not noted it yet
            return self.shared.is_ahead

    def share(self, shared: SharedEpoch, *, is_new: bool) -> None:
        """Count loops together with other processes; unless they do so already, from here on."""
        position, self.shared = self.next(), shared
        if is_new:
            shared.tell(position)

    def restart(self) -> None:
        """Forget the loops so far, which are of another process; the next one begins where it would."""
        self.start = self.next()
        self._forget_loops()

    def snapshot(self, world: World) -> RunSnapshot:
        """Return what others need to read for a loop of this run; `world` is as for `RunSnapshot`."""
        return RunSnapshot(self.batch_size, self._start, self.planner.mixture, world)

    def adopt(self, snapshot: RunSnapshot) -> None:
        """Plan what the run of a snapshot does."""
        self.batch_size, self._start = snapshot.batch_size, snapshot.start
        self.planner.mixture = snapshot.mixture

    # -- changes ---------------------------------------------------------------------

    def _go_to(self, position: Position, reason: str) -> None:
        """Let the next loop begin at a position, and end those that run."""
        with _beginning:
            self.start, self.latest, self._has_warned = position, None, False
            self.first_epoch = position.epoch
            self._start_trainer_epoch = self.trainer_epoch
            self._change(reason)

    def _change(self, reason: str) -> None:
        with _beginning:
            self.version += 1
            self._reason = reason
            for loop in list(self._running):
                if loop is not self.latest:
                    loop.end_by(reason)
            self.shared.set(self._own_next())

    def follow_trainer(self, epoch: int, world: World) -> None:
        """Go to the epoch of a trainer if the run is new, or to the next one after the trainer's last one.

        That is at the end of an epoch, and within one if the loaded state is of an earlier epoch of the
        trainer: it had ended its epoch there. An earlier number is of a trainer that counts anew.
        """
        epoch = self.trainer_epoch = whole_number("epoch", epoch, 0) or 0
        before = self._trainer_epoch_at_position
        position = self.next()
        reason = "the trainer has named its epoch, which begins elsewhere"
        if position == Position():
            if epoch:
                self._go_to(Position(epoch), reason)
        elif (position.done and before is not None and epoch > before) or (
            epoch != position.epoch and self._is_over(position, world)
        ):
            self._go_to(Position(position.epoch + 1), reason)

    @property
    def _trainer_epoch_at_position(self) -> int | None:
        return self._start_trainer_epoch if self.latest is None else self.latest.trainer_epoch

    def _is_over(self, position: Position, world: World) -> bool:
        step = position.done // self.units_per_step(world)
        if self.varies:
            return step > 0 and step >= self.epoch(position.epoch, world).steps
        return step > 0 and step * self.batch >= self.length(world)

    def resize(self, batch: int, before: World) -> None:
        """Go on with the latest loop in another world than `before`, with batches of this size."""
        self.change_world(batch, before)
        self.num_resizes += 1
        self._change("resize() was called, which only the loop that was advanced last follows")

    def set_proportions(self, proportions: Sequence[float], world: World) -> None:
        """Change the proportions of the streams from the next step on: of the latest loop, if it runs."""
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
        latest, position = self.latest, self.next()
        if latest is not None and latest.is_running:
            latest.check_between_batches("set_proportions()")
            position = latest.position
        size = self.units_per_global_batch(world)
        if position.done % size:
            raise ConfigError(
                f"set_proportions after {position.done} batches of an epoch, in the middle of a global batch "
                f"of {size} batches: call it when all of these were read"
            )
        run_step = self._step_of_run(world, position, planner.mixture, exact=True)
        planner.mixture = change_mixture(planner.mixture, planner.streams, run_step, proportions)
        self._change(
            "other proportions were set, which only the loop that was advanced last follows"
        )

    def forget_changes_after(self, position: Position, world: World) -> None:
        """Drop the calls of `set_proportions` that a state at a position does not know of."""
        planner = self.planner
        changes = self.state_at(world, position).get("curriculum", [])
        count = sum("by_hand" in change for change in changes)
        planner.mixture = keep_first_changes(
            planner.mixture, self._initial_mixture, planner.streams, count
        )

    # -- states ----------------------------------------------------------------------

    def position(self, *, ignore_others: bool = False) -> Position:
        """Return the position of the loop that was advanced last, or that of the next one without any.

        Args:
            ignore_others: Whether loops that others have started since count for nothing, but that the next
                one begins after them.

        Raises:
            StateError: If loader workers have read since, or this process is one.
        """
        latest, others = self.latest, self._read_by_others()
        is_ahead = latest is not None and latest.is_ahead
        if self._in_worker or is_ahead or (others and not ignore_others):
            raise StateError(
                "the data set was read by loader workers, which may be ahead of the training loop; use "
                "StreamingDataLoader.state_dict() and resize(), or pass num_samples= to state_dict()"
            )
        is_over = latest is None or latest.position.epoch > latest.epoch
        if others and is_over:
            return self.next()
        return self.start if latest is None else latest.position

    def state(self, world: World, *, ignore_others: bool = False) -> dict[str, Any]:
        """Return the state of the loop that was advanced last; warn if another one is not over.

        Raises:
            StateError: As `position`, which explains `ignore_others`, too.
        """
        position = self.position(ignore_others=ignore_others)
        self.warn_about_others()
        return self.state_at(world, position, self._trainer_epoch_at_position)

    def warn_about_others(self) -> None:
        """Warn once that a state is of the loop that was advanced last, if another one is not over."""
        with _beginning:
            latest = self.latest
            others = [loop for loop in self._running if loop is not latest and loop.is_running]
        if latest is None or not others or self._has_warned:
            return
        self._has_warned = True
        _LOG.warning(
            "state_dict() is of the loop that was advanced last, at %s; another one is at %s: for its state "
            "call state_dict() of its iterator, if it has one, or close it",
            self._describe(latest),
            self._describe(max(others, key=lambda loop: loop.number)),
        )

    def _describe(self, loop: Loop) -> str:
        at = loop.position
        return f"epoch {at.epoch}" + ("" if loop.is_ahead else f", {self._unit} {at.done}")

    @property
    def _unit(self) -> str:
        return "batch" if self.varies else "sample"

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
        current, latest = self.current(), None if self._read_by_others() else self.latest
        epoch, first = current.epoch, current.done
        own = Position(-1) if latest is None else latest.position
        is_over = own.epoch > epoch or (own.epoch == epoch and self._is_over(own, world))
        if not samples and is_over:
            epoch, first = epoch + 1, 0
        if samples % global_batch or samples < 0:
            raise StateError(
                f"num_samples={samples} is not a multiple of the global batch size {global_batch}; a state "
                "exists only between global batches"
            )
        position = Position(epoch, int(samples) + (0 if from_beginning else first))
        with prefix_errors(f"num_samples={samples}", StateError):  # which could not be loaded
            self._check_position(position, world)
        return self.state_at(world, position, self.trainer_epoch)

    def next_state(self, world: World) -> dict[str, Any]:
        """Return the state before the next loop."""
        return self.state_at(world, self.next(), self._trainer_epoch_at_position)

    def state_at(
        self, world: World, position: Position, trainer_epoch: int | None = None
    ) -> dict[str, Any]:
        """Return the state at a position, which a trainer reached in its epoch `trainer_epoch`."""
        config = self._epoch_config(world)
        initial_batch_size = (
            config.initial_batch_size if config.batching_method == "device_per_stream" else None
        )
        saved = state.save(
            self.identity(world),
            position.epoch,
            position.done,
            config.initial_nodes,
            initial_batch_size,
            initial_world=config.initial_world,
        )
        if position.done > 0 and trainer_epoch is not None:
            saved["trainer_epoch"] = trainer_epoch
        batches, mixture = self.planner.batches, self.planner.mixture
        if batches is not None:  # for tools that open the data set by a state
            saved["batch_options"] = batches.options()
        if isinstance(mixture, Mixture):
            return {**saved, "curriculum_changes": 0}
        changes = mixture.changes_until(self._step_of_run(world, position, mixture))
        past = {"curriculum": changes} if changes else {}
        return {**saved, "curriculum_changes": len(changes), **past}

    def _step_of_run(
        self, world: World, position: Position, mixture: StreamMixture, *, exact: bool = False
    ) -> int:
        """Return the global batches of the run before a position, or more than the step of any change."""
        planner, config = replace(self.planner, mixture=mixture), self._epoch_config(world)
        step = position.done // self.units_per_global_batch(world)
        epochs = planner.curriculum_epochs(config)
        if epochs is None:
            steps = planner.length(world, self.batch, config) // self.batch
            return position.epoch * steps + step
        mixtures = (mixture, self._initial_mixture)
        last = max(m.changes[-1].step for m in mixtures if isinstance(m, Curriculum))
        return epochs.steps_before(position.epoch, _MAX_RUN_SAMPLES if exact else last) + step

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        if any(map(saved.get, ("packing", "pipeline", "parts", "loader"))):
            # A data set would repeat or lose samples.
            raise StateError(
                "the state is of packs, or in the middle of batches of a pipeline: load it into packs, or "
                "load it into that pipeline or its WebLoader, or save it at the end of an epoch"
            )
        before = self._start, self.batch_size
        # Options that were not given are taken from the state.
        self._start = RunStart.from_state(saved)
        batch = positive_count(saved, "global_batch")
        if self.batch_size is None and not self.varies and batch and batch % world.ranks == 0:
            self.batch_size = batch // world.ranks
        try:
            batches_per_step = world.ranks if self.varies else None
            position = Position(
                *state.load(saved, self.identity(world), batches_per_step=batches_per_step)
            )
            self._check_position(position, world)
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
                    partial(self._step_of_run, world, position),
                    within_step=position.done % self.units_per_global_batch(world) != 0,
                )
        except BaseException:
            self._start, self.batch_size = before
            raise
        self.trainer_epoch = trainer_epoch
        self._go_to(position, "a state was loaded")

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

    def _check_position(self, position: Position, world: World) -> None:
        size, total = self.planner.size, self.units_per_step(world)
        # Each stream may pad a batch of its own, and ranks may repeat some.
        steps = -(-size // total) + len(self.planner.streams) + world.ranks
        if self.varies:  # the last global batch may be completed
            steps += self.units_per_global_batch(world) // total
        if not self.options.elastic:
            # Each canonical node of a stream may be padded for any world with at most as many ranks as a
            # batch has samples.
            steps += 3 * self._epoch_config(world).canonical_nodes * len(self.planner.streams)
        if (
            position.done > steps * total
            or (position.epoch + 1) * (size + steps * total) >= _MAX_RUN_SAMPLES
        ):
            raise StateError(
                f"the state is at epoch {position.epoch}, {self._unit} {position.done}; an epoch has {size} "
                "samples"
            )


# Held while a thread begins or ends a loop, or looks at those of all threads. It is reentrant: a signal
# handler may start a loop while this thread holds it.
_beginning = RLock()


def _renew_lock_in_child() -> None:
    global _beginning  # noqa: PLW0603 - another thread may have held it at the fork
    _beginning = RLock()


os.register_at_fork(after_in_child=_renew_lock_in_child)


def make_run(
    options: OrderOptions,
    weights: Sequence[Weight],
    reader: SampleReader,
    fingerprint: DatasetFingerprint,
    batches: BatchPlanner | None,
) -> Run:
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
    return Run(planner, fingerprint, options)
