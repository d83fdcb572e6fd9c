"""Planner of batches of a fixed number of samples, which are the same for every world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamplug.errors import ConfigError
from streamplug.plan import (
    ElasticPlanner,
    Epoch,
    JoinedEpoch,
    Position,
    Segment,
    Streams,
    WeightedMixture,
)
from streamplug.types import World
from streamplug_mixing.curriculum import Curriculum, CurriculumChange, CurriculumSchedule
from streamplug_mixing.interleave import Interleaving
from streamplug_mixing.proportion_planner import ProportionPlanner
from streamplug_mixing.stream_batching import MixedEpoch, PerStreamEpoch, ScheduledEpoch
from streamplug_mixing.stream_orders import StreamOrders
from streamplug_mixing.stream_samples import Rest, SinglePass, StreamSamples


class MixturePlanner(ProportionPlanner):
    """Planner of a mixture of streams, or of proportions that change.

    The method ``random`` shuffles all streams together until proportions change. ``stratified`` takes parts
    of each stream for every global batch, ``per_stream`` makes global batches of one stream each, and
    ``device_per_stream`` makes batches of one stream for each rank.
    """

    def __init__(self, streams: Streams, method: str) -> None:
        super().__init__(streams)
        self._method = method
        self.depends_on_world = method == "device_per_stream"

    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        changes, first = self._changes(segments), segments[0]
        steps = self._steps(first)
        start = (
            changes[0].step - number * steps if changes else steps
        )  # may be that of another epoch
        if start >= steps:
            return self._whole(number, first)
        scheduled = self._scheduled(number, changes, first)
        return JoinedEpoch([self._whole(number, first), scheduled]) if start > 0 else scheduled

    def length(self, segment: Segment, world: World) -> int:
        return self._steps(segment) * segment.global_batch // world.ranks

    def _steps(self, segment: Segment) -> int:
        """Return the number of steps of an epoch."""
        size, global_batch = self.streams.epoch_size, segment.global_batch
        mixture = self.streams.mixture
        if self._method == "random" or not isinstance(mixture, WeightedMixture):
            return -(-size // global_batch)
        unit = self._unit(segment)
        return -(-sum(-(-taken // unit) for taken in mixture.choose) // (global_batch // unit))

    def _unit(self, segment: Segment) -> int:
        """Return the number of samples of one stream that stay together."""
        if self._method == "device_per_stream":
            return segment.batch
        return segment.global_batch if self._method == "per_stream" else 1

    def _orders(self, segment: Segment) -> StreamOrders:
        return StreamOrders(self.streams.of(segment), segment.canonical_nodes)

    def _whole(self, number: int, segment: Segment) -> Epoch:
        """Return an epoch of what the options take of the streams."""
        if self._method == "random":
            return ElasticPlanner(self.streams).epoch(number, [segment])
        schedule, samples = self._single_passes(number, segment)
        return self._combine(schedule, samples, segment, range(schedule.total))

    def _single_passes(
        self, number: int, segment: Segment
    ) -> tuple[Interleaving, list[SinglePass]]:
        unit, orders = self._unit(segment), self._orders(segment)
        unit_of_node = 1 if self._method == "per_stream" else unit
        samples = [
            orders.single_pass(stream, number, unit_of_node)
            for stream in range(len(self.streams.sizes))
        ]
        return Interleaving([-(-each.size // unit) for each in samples]), samples

    def _scheduled(
        self, number: int, changes: Sequence[CurriculumChange], segment: Segment
    ) -> Epoch:
        """Return the part of an epoch from the first change of proportions on."""
        first, steps = changes[0].step, self._steps(segment)
        slots_per_step = segment.global_batch // self._unit(segment)
        relative = [replace(change, step=change.step - first) for change in changes]
        start = max(first, number * steps)
        return self._combine(
            CurriculumSchedule(relative, slots_per_step),
            self._rest(*divmod(first, steps), segment),
            segment,
            range(
                (start - first) * slots_per_step, ((number + 1) * steps - first) * slots_per_step
            ),
            first_step=start - number * steps,
        )

    def _rest(self, epoch: int, step: int, segment: Segment) -> list[StreamSamples]:
        """Return what is left of each stream at a step of an epoch, and then its further passes.

        With the method ``random`` an epoch has no passes of single streams.
        """
        passes = self._orders(segment).repeat(epoch + (step > 0))
        if not step or self._method == "random":
            return passes
        unit = self._unit(segment)
        schedule, samples = self._single_passes(epoch, segment)
        turns = schedule.turns_before(step * (segment.global_batch // unit))
        return [Rest(*each) for each in zip(samples, (turn * unit for turn in turns), passes)]

    def _combine(
        self,
        schedule: Interleaving | CurriculumSchedule,
        samples: Sequence[StreamSamples],
        segment: Segment,
        slots: range,
        first_step: int = 0,
    ) -> ScheduledEpoch:
        epoch_class = PerStreamEpoch if self._method == "per_stream" else MixedEpoch
        return epoch_class(
            schedule,
            samples,
            self.streams.first_ids,
            unit=self._unit(segment),
            global_batch=segment.global_batch,
            slots=slots,
            first_step=first_step,
        )

    # -- segments --------------------------------------------------------------------

    def _changes(self, segments: Sequence[Segment]) -> list[CurriculumChange]:
        """Return the planned changes of proportions, and those of segments, which take their place."""
        changes: dict[int, CurriculumChange] = {}
        if isinstance(self.streams.mixture, Curriculum):
            changes = {change.step: change for change in self.streams.mixture.changes}
        for number, segment in enumerate(segments):
            if segment.proportions is not None:
                step = self._step_of(segment.start, segments[:number]) if number else 0
                changes[step] = CurriculumChange(step, segment.proportions)
        return [changes[step] for step in sorted(changes)]

    def _step_of(self, position: Position, segments: Sequence[Segment]) -> int:
        """Return the number of global batches of the run before a position."""
        first = segments[0]
        return position.epoch * self._steps(first) + position.done // first.global_batch

    def position_of(self, step: int, segments: Sequence[Segment]) -> Position:
        steps = self._steps(segments[0])
        epoch, step_of_epoch = divmod(step, steps) if steps else (0, step)  # of no samples
        return Position(epoch, step_of_epoch * segments[0].global_batch)

    def with_proportions(
        self,
        segments: Sequence[Segment],
        position: Position,
        proportions: Sequence[float],
    ) -> list[Segment]:
        mixture = self.streams.mixture
        if isinstance(mixture, WeightedMixture):
            _check_changeable(mixture)
        if len({segment.global_batch for segment in segments}) > 1:
            raise ConfigError(
                "set_proportions after a change of the global batch, on which the steps of a change depend: "
                "begin a new run"
            )
        return self.changed_by_hand(segments, position, proportions)


def _check_changeable(mixture: WeightedMixture) -> None:
    """Raise `ConfigError` unless epochs are made of proportions of whole streams."""
    if not mixture.is_relative:
        raise ConfigError(
            "set_proportions: epochs of this run take fixed numbers of samples (repeat=, choose=, or "
            "each sample once); begin the run with proportion= of each stream, or with curriculum="
        )
    if (mixture.method, mixture.granularity) != ("balanced", 1):
        raise ConfigError(
            f"set_proportions reads all of every stream; the run has sampling_method={mixture.method!r} and "
            f"sampling_granularity={mixture.granularity}: expected 'balanced' and 1"
        )
