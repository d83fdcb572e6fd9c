"""What all loops over a data set share: planner, segments, state, and where the next loop begins."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any
from weakref import WeakSet

from streamplug.config import check_flags, whole_number
from streamplug.errors import ConfigError, StateError, prefix_errors
from streamplug.plan import (
    DatasetFingerprint,
    Epoch,
    Planner,
    Position,
    Segment,
    checked_epoch,
    checked_identity,
    state,
)
from streamplug.run.hints import warn_about_batches, warn_about_order
from streamplug.run.loop import Loop, ended_error
from streamplug.run.order import OrderOptions
from streamplug.run.shared_epoch import SharedEpoch, WorkerLoop
from streamplug.types import World

_LOG = logging.getLogger("streamplug")
_MAX_RUN_UNITS = 1 << 62  # exclusive upper bound
# Exclusive upper bounds of counts of nodes and ranks, and of samples, of a state that options lack.
_MAX_COUNT = 1 << 20
_MAX_SAMPLES = 1 << 31


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """What of a run may have changed since its data set was made, for those that read for its loops.

    Attributes:
        segments: None while they depend on the world alone.
        world: Place of the rank, not merged with its replicas.
    """

    batch_size: int | None
    segments: Sequence[Segment] | None
    world: World


class Run:
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
        self,
        planner: Planner,
        fingerprint: DatasetFingerprint,
        options: OrderOptions,
        *,
        cache_share: float | None = None,
    ) -> None:
        """Begin a run; `cache_share` is as for `Streams.fitting_block_size`."""
        self.planner, self.options, self.batch_size = planner, options, options.batch_size
        self._cache_share = cache_share
        self._fingerprint = fingerprint
        self._segments: Sequence[Segment] | None = None  # None until something has changed
        self.first_epoch = 0  # with which the run began, or was resumed
        self._epoch: tuple[object, Epoch] | None = None  # planned last, and its key
        self.start, self.version, self.num_resizes, self.num_loops = Position(), 0, 0, 0
        self.trainer_epoch: int | None = None
        self._start_trainer_epoch: int | None = None  # that of `start`
        self.shared = SharedEpoch()
        self._forget_loops()

    def _forget_loops(self) -> None:
        self.latest: Loop | None = None
        self._running: WeakSet[Loop] = WeakSet()
        self._has_warned = False
        self._reason = ""  # of the latest change
        self._in_worker = False

    def __getstate__(self) -> dict[str, Any]:
        own = ("latest", "_running", "shared")
        saved = {key: value for key, value in self.__dict__.items() if key not in own}
        return {**saved, "start": self.next(), "_epoch": None}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        self.shared = SharedEpoch()
        self._forget_loops()

    # -- order -----------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Samples per batch of one rank; 1 without a batch size."""
        return self.batch_size or 1

    @property
    def counts_batches(self) -> bool:
        """Whether positions count batches over all ranks, which vary in size, not samples."""
        return self.planner.counts_batches

    def use_batch_size(self, batch_size: int | None) -> None:
        """Set the batch size to the loader's, or check that both are equal."""
        batch_size = whole_number("batch_size", batch_size, 1)
        if self.counts_batches and self.batch_size is None and batch_size is not None:
            raise ConfigError(
                f"batch_size={batch_size}: batching_method={self.options.batching_method!r}: the largest "
                "number of samples of a batch is batch_size= of the data set; give it there, or leave it out"
            )
        if self.batch_size is None and batch_size is not None:
            self.batch_size = batch_size
            if self._segments is not None:  # of the default, one sample
                self._segments = [
                    replace(segment, global_batch=batch_size * segment.world.ranks)
                    for segment in self._segments
                ]
        if batch_size not in (None, self.batch_size):
            raise ConfigError(
                f"batch_size={batch_size} differs from batch_size={self.batch_size} of the data set, on "
                "which the order depends; give both the same number, or leave it out here"
            )
        if self.batch_size is None and not self.counts_batches:
            raise ConfigError("no batch size: give it here, or as batch_size= of the data set")

    def segments(self, world: World) -> Sequence[Segment]:
        """Return the segments of the run; without any change, the one of a run that begins in this world."""
        return self._segments or (self._first_segment(world),)

    def _first_segment(self, world: World, saved: Mapping[str, Any] | None = None) -> Segment:
        """Return the segment of a run that begins in a world; those of a state replace defaults."""
        planner, saved = self.planner, saved or {}
        begun_with = _positive_count(saved, "num_canonical_nodes")
        nodes = self.options.canonical_nodes(world.nodes, begun_with)
        if self.options.elastic:  # more canonical nodes than samples would be empty
            nodes = max(min(nodes, planner.streams.epoch_size), 1)
        if self.counts_batches:
            own = planner.micro_batches or _positive_count(saved, "micro_batches")
            global_batch = own or world.ranks
        else:
            global_batch = (
                _positive_count(saved, "global_batch", _MAX_SAMPLES) or self.batch * world.ranks
            )
        block_size = _positive_count(saved, "shuffle_block_size", _MAX_SAMPLES)
        if block_size is None:
            share = self._cache_share
            block_size = planner.streams.fitting_block_size(nodes, world.nodes, share)
        origin = World(world.nodes, world.ranks_per_node)
        return Segment(Position(), origin, global_batch, nodes, block_size)

    def length(self, world: World) -> int:
        """Return the number of samples of a rank in an epoch, approximately if batches vary in size."""
        self._check_size()
        return self.planner.length(self.segments(world)[-1], world)

    def epoch(self, number: int, world: World) -> Epoch:
        """Return the plan of an epoch."""
        self._check_size()
        return self._plan(number, self.segments(world))

    def _plan(self, number: int, segments: Sequence[Segment]) -> Epoch:
        known = [segment for segment in segments if segment.start.epoch <= number]
        key, latest = (number, known), self._epoch  # another thread may plan another epoch
        if latest is None or latest[0] != key:
            self._epoch = latest = (key, checked_epoch(self.planner, number, known))
        return latest[1]

    def _is_over(self, position: Position, segments: Sequence[Segment]) -> bool:
        """Return whether a position is the end of an epoch."""
        done = position.done
        return done > 0 and done >= self._plan(position.epoch, segments).units.stop

    def _boundary(self, position: Position, segments: Sequence[Segment]) -> Position:
        """Return a position, or the start of the next epoch if it is the end of one: both are one place."""
        return Position(position.epoch + 1) if self._is_over(position, segments) else position

    def warn(self, number: int, worker: World) -> None:
        """Warn about options that perform badly, when a worker begins to read an epoch."""
        if number > self.first_epoch:  # those of the first one have warned already
            return
        if not self.counts_batches:
            warn_about_batches(self.batch_size, worker)
        warn_about_order(self.planner.streams, self.segments(worker)[0], worker, self._cache_share)

    def _check_size(self) -> None:
        if not self.planner.streams.epoch_size:
            raise ConfigError(
                "an epoch of the data set has no samples: its streams have none, or select=, choose=, "
                "repeat= or proportions leave out all of them"
            )

    def global_step(self, epoch: int, step: int, world: World) -> int:
        """Return the number of the global batch of a step; batches that vary may take several steps."""
        return self.epoch(epoch, world).global_step(world, step)

    def identity(self, world: World) -> state.OrderIdentity:
        """Return what determines this run's order."""
        return self._identity(self.segments(world))

    def _identity(self, segments: Sequence[Segment]) -> state.OrderIdentity:
        options, streams, latest = self.options, self.planner.streams, segments[-1]
        return state.OrderIdentity(
            size=streams.samples,
            shards=self._fingerprint.digest,
            global_batch=0 if self.counts_batches else latest.global_batch,
            epoch_size=streams.epoch_size,
            streams=streams.sizes,
            shuffle_algo=options.used_shuffle,
            shuffle_seed=streams.seed,
            shuffle_block_size=streams.of(latest).block_size(latest.canonical_nodes),
            num_canonical_nodes=latest.canonical_nodes,
            partition_algo=options.partition_algo,
            batching_method=options.batching_method,
            **streams.mixture.identity(),
            micro_batches=latest.global_batch if self.counts_batches else 0,
            batch_budget=checked_identity(self.planner, latest) or None,
            fingerprint=self._fingerprint,
        )

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
        return self.epoch(self.next().epoch, world).steps(world)

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
            loop = Loop(self, position, world, number)
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
        return RunSnapshot(self.batch_size, self._segments, world)

    def adopt(self, snapshot: RunSnapshot) -> None:
        """Plan what the run of a snapshot does."""
        self.batch_size, self._segments = snapshot.batch_size, snapshot.segments

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
            epoch != position.epoch and self._is_over(position, self.segments(world))
        ):
            self._go_to(Position(position.epoch + 1), reason)

    @property
    def _trainer_epoch_at_position(self) -> int | None:
        return self._start_trainer_epoch if self.latest is None else self.latest.trainer_epoch

    def resize(
        self, position: Position, before: World, world: World, batch_size: int | None
    ) -> None:
        """Go on with the latest loop at a position, in another world than `before`.

        Raises:
            ConfigError: If the ranks do not divide the global batch and there is no batch size, or the
                position is within a global batch.
        """
        start = self._boundary(position, self.segments(before))
        segments = [s for s in self.segments(before) if s.start <= start]
        size = global_batch = segments[-1].global_batch
        if batch_size is not None:
            if self.counts_batches:
                raise ConfigError(
                    f"resize() with batch_size={batch_size}: batches vary in size, and a global batch stays "
                    f"{size} batches; leave it out"
                )
            global_batch = (whole_number("batch_size", batch_size, 1) or 1) * world.ranks
        elif size % world.ranks:
            unit = "batches" if self.counts_batches else "samples"
            give = "" if self.counts_batches else ", or give the batch_size= of a rank from here on"
            raise ConfigError(
                f"resize() to {world.ranks} ranks: the global batch of {size} {unit}, which stays the same, "
                f"is no multiple of {world.ranks}; go on with a number of ranks that divides it{give}"
            )
        self.check_between_global_batches(position, before, "resize()")
        if global_batch != size:
            segments = self.planner.with_global_batch(segments, start, global_batch)
        self._segments = segments
        if not self.counts_batches:
            self.batch_size = global_batch // world.ranks
        self.num_resizes += 1
        self._change("resize() was called, which only the loop that was advanced last follows")

    def check_between_global_batches(self, position: Position, world: World, call: str) -> None:
        """Raise `ConfigError` if a position is within a global batch, which may take several steps."""
        if not self.counts_batches:
            return
        size = self.segments(world)[-1].global_batch
        if position.done % size:
            raise ConfigError(
                f"{call} after {position.done} batches of an epoch, in the middle of a global batch of "
                f"{size} batches: call it when all of these were read"
            )

    def set_proportions(self, proportions: Sequence[float], world: World) -> None:
        """Change the proportions of the streams from the next step on: of the latest loop, if it runs."""
        if not self.options.elastic:
            raise ConfigError(
                f"set_proportions: partition_algo={self.options.partition_algo!r}: needs 'elastic'"
            )
        latest, position = self.latest, self.next()
        if latest is not None and latest.is_running:
            latest.check_between_batches("set_proportions()")
            position = latest.position
        self.check_between_global_batches(position, world, "set_proportions")
        segments = self.segments(world)
        start = self._boundary(position, segments)
        self._segments = self.planner.with_proportions(segments, start, proportions)
        self._change(
            "other proportions were set, which only the loop that was advanced last follows"
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
        return f"epoch {at.epoch}" if loop.is_ahead else self.describe(at)

    def describe(self, position: Position) -> str:
        """Return a position in words."""
        return f"epoch {position.epoch}, {self._unit} {position.done}"

    @property
    def _unit(self) -> str:
        return "batch" if self.counts_batches else "sample"

    def state_after(self, samples: int, world: World, *, from_beginning: bool) -> dict[str, Any]:
        """Return the state after `samples` of the current epoch, counted over all ranks.

        With 0 samples after the end of an epoch, return the start of the next one.
        """
        check_flags(from_beginning=from_beginning)
        if self.counts_batches:
            raise StateError(
                "num_samples= of batches that vary in size: use state_dict() of the data set or the loader"
            )
        current, latest = self.current(), None if self._read_by_others() else self.latest
        epoch, first, segments = current.epoch, current.done, self.segments(world)
        own = Position(-1) if latest is None else latest.position
        is_over = own.epoch > epoch or (own.epoch == epoch and self._is_over(own, segments))
        if not samples and is_over:
            epoch, first = epoch + 1, 0
        done = int(samples) + (0 if from_beginning else first)
        # The start is a state of epochs that cannot be made in this world, too.
        if done or samples:
            plan = self.epoch(epoch, world)
            is_count = 0 <= samples == int(samples)
            if not is_count or plan.done_before(world, plan.step_at(world, done)) != done:
                raise StateError(
                    f"num_samples={samples} is not a multiple of the global batch size "
                    f"{plan.global_batch}; a state exists only between global batches"
                )
        position = Position(epoch, done)
        with prefix_errors(f"num_samples={samples}", StateError):  # which could not be loaded
            self._check_position(position, segments)
        return self.state_at(world, position, self.trainer_epoch)

    def next_state(self, world: World) -> dict[str, Any]:
        """Return the state before the next loop."""
        return self.state_at(world, self.next(), self._trainer_epoch_at_position)

    def state_at(
        self, world: World, position: Position, trainer_epoch: int | None = None
    ) -> dict[str, Any]:
        """Return the state at a position, which a trainer reached in its epoch `trainer_epoch`."""
        segments = self.segments(world)
        segments = self.planner.segments_until(self._boundary(position, segments), segments)
        return state.save(
            self._identity(segments),
            position,
            segments,
            trainer_epoch=trainer_epoch,
            options=self.planner.options(),
            depends_on_world=self.planner.depends_on_world,
        )

    def load(self, saved: Mapping[str, Any], world: World) -> None:
        """Resume from a state; raise `StateError` if it belongs to a run with a different order."""
        values, planner = state.unpack(saved), self.planner
        if any(map(values.get, ("packing", "pipeline", "parts", "loader"))):
            # A data set would repeat or lose samples.
            raise StateError(
                "the state is of packs, or in the middle of batches of a pipeline: load it into packs, or "
                "load it into that pipeline or its WebLoader, or save it at the end of an epoch"
            )
        before = self._segments, self.batch_size
        self._segments = None
        try:
            self._take_batch_size(values, world)
            first = self._first_of_state(values, world)
            own = first.global_batch if self.counts_batches else self.batch * world.ranks
            identity = self._identity([replace(first, global_batch=own)])
            position = state.load(values, identity)
            saved_segments = state.read_segments(
                values, first, planner.streams.sizes, planner.position_of
            )
            self._check_position(position, saved_segments)
            within = self.counts_batches and position.done % own != 0
            start = self._boundary(position, saved_segments)
            segments = planner.resume(saved_segments, start, within_step=within)
            if segments[-1].global_batch != own:
                raise StateError(
                    f"the state's segments end with a global batch of {segments[-1].global_batch}, and its "
                    f"order has {own}: it was changed"
                )
            per_step = world.ranks if self.counts_batches else own
            state.check_between_steps(start, segments[-1], identity, per_step)
            trainer_epoch = state.read_trainer_epoch(values)
        except BaseException:
            self._segments, self.batch_size = before
            raise
        self._segments, self.trainer_epoch = segments, trainer_epoch
        self._go_to(position, "a state was loaded")

    def _take_batch_size(self, values: Mapping[str, Any], world: World) -> None:
        """Take the batch size of a state if there is none."""
        size = _positive_count(values, "global_batch", _MAX_SAMPLES)
        if self.batch_size is None and not self.counts_batches and size and not size % world.ranks:
            self.batch_size = size // world.ranks

    def _first_of_state(self, values: Mapping[str, Any], world: World) -> Segment:
        """Return the segment with which the run of a state began; its options are the defaults of this one.

        Raises:
            StateError: If the state lacks what its batches depend on.
        """
        first = self._first_segment(self._origin_of_state(values, world), values)
        initial_nodes = _positive_count(values, "initial_physical_nodes")
        if values.get("version") is None and initial_nodes is not None:
            first = self.planner.begun_on(initial_nodes, first)
        return first

    def _origin_of_state(self, values: Mapping[str, Any], world: World) -> World:
        """Return the world in which the run of a state began, as far as its order depends on it.

        Raises:
            StateError: If the state lacks what its batches depend on.
        """
        if values.get("version") is None:
            return world  # mosaicml-streaming makes batches for each world anew
        nodes = _positive_count(values, "initial_physical_nodes") or world.nodes
        if not self.planner.depends_on_world:
            return World(nodes)
        global_batch = _positive_count(values, "global_batch", _MAX_SAMPLES) or 1
        key, expected = "initial_world", "numbers of nodes and of ranks per node"
        sizes: Any = values.get(key)
        if isinstance(sizes, list) and len(sizes) == 2 and all(map(_is_count, sizes)):
            if not global_batch % (sizes[0] * sizes[1]):
                return World(*sizes)
        elif self.options.elastic and values["version"] == 1:  # which had the batch size alone
            key, expected = "initial_batch_size", "number of samples per batch of a rank"
            batch = _positive_count(values, key, _MAX_SAMPLES)
            if batch and not global_batch % batch:
                return World(1, global_batch // batch)
        raise StateError(
            f"the state has {key}={values.get(key)!r:.40}; expected the {expected} for which its batches "
            "were made: the state is truncated, was changed, or was saved by an earlier version"
        )

    def _check_position(self, position: Position, segments: Sequence[Segment]) -> None:
        units = self.planner.max_units(segments)
        if position.done > units or (position.epoch + 1) * 2 * units >= _MAX_RUN_UNITS:
            raise StateError(
                f"the state is at {self.describe(position)}; an epoch has "
                f"{self.planner.streams.epoch_size} samples"
            )


def _is_count(value: object, limit: int = _MAX_COUNT) -> bool:
    return type(value) is int and 0 < value < limit


def _positive_count(values: Mapping[str, Any], key: str, limit: int = _MAX_COUNT) -> int | None:
    """Return a positive count of a state; None if it has none, or an absurd one."""
    value = values.get(key)
    return value if _is_count(value, limit) else None


# Held while a thread begins or ends a loop, or looks at those of all threads. It is reentrant: a signal
# handler may start a loop while this thread holds it.
_beginning = RLock()


def _renew_lock_in_child() -> None:
    global _beginning  # noqa: PLW0603 - another thread may have held it at the fork
    _beginning = RLock()


os.register_at_fork(after_in_child=_renew_lock_in_child)
