"""Planner of batches of a fixed number of samples, which are the same for every world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamplug.errors import ConfigError
from streamplug.plan.curriculum import (
    Curriculum,
    CurriculumChange,
    CurriculumSchedule,
)
from streamplug.plan.elastic import ElasticEpoch
from streamplug.plan.epoch import Epoch, JoinedEpoch
from streamplug.plan.interleave import Interleaving
from streamplug.plan.mixture import Mixture
from streamplug.plan.planner import Planner
from streamplug.plan.position import Position
from streamplug.plan.segment import Segment
from streamplug.plan.stream_batching import MixedEpoch, PerStreamEpoch, ScheduledEpoch
from streamplug.plan.stream_samples import Rest, SinglePass, StreamSamples
from streamplug.plan.streams import Streams
from streamplug.types import World

MIXTURE_METHODS = ("random", "per_stream", "stratified", "device_per_stream")


class MixturePlanner(Planner):
    """Planner of a mixture of streams, or of proportions that change.

    The method ``random`` shuffles all streams together. ``stratified`` takes parts of each stream for every
    global batch, ``per_stream`` makes global batches of one stream each, and ``device_per_stream`` makes
    batches of one stream for each rank.
    """

    def __init__(self, streams: Streams, method: str) -> None:
        super().__init__(streams)
        self._method = method
        self.depends_on_world = method == "device_per_stream"

    def epoch(self, number: int, segments: Sequence[Segment]) -> Epoch:
        changes, first = self.changes(segments), segments[0]
        steps = self._steps(first)
        start = (
            changes[0].step - number * steps if changes else steps
        )  # may be that of another epoch
        if start >= steps:
            return self._whole(number, segments)
        scheduled = self._scheduled(number, changes, first)
        return JoinedEpoch([self._whole(number, [first]), scheduled]) if start > 0 else scheduled

    def length(self, segment: Segment, world: World) -> int:
        return self._steps(segment) * segment.global_batch // world.ranks

    def _steps(self, segment: Segment) -> int:
        """Return the number of steps of an epoch."""
        size, global_batch = self.streams.epoch_size, segment.global_batch
        mixture = self.streams.mixture
        if self._method == "random" or isinstance(mixture, Curriculum):
            return -(-size // global_batch)
        unit = self._unit(segment)
        return -(-sum(-(-taken // unit) for taken in mixture.choose) // (global_batch // unit))

    def _unit(self, segment: Segment) -> int:
        """Return the number of samples of one stream that stay together."""
        if self._method == "device_per_stream":
            return segment.batch
        return segment.global_batch if self._method == "per_stream" else 1

    def _whole(self, number: int, segments: Sequence[Segment]) -> Epoch:
        """Return an epoch of what the options take of the streams."""
        if self._method != "random":
            schedule, samples = self._single_passes(number, segments[0])
            return self._combine(schedule, samples, segments[0], range(schedule.total))
        nodes, start = segments[0].canonical_nodes, Position(number)
        ordered = self.streams.epoch(number, nodes)
        held = [segment for segment in segments if segment.start <= start][-1]
        parts = [ElasticEpoch(ordered, nodes, held.global_batch)]
        for segment in segments:
            is_within = start < segment.start and segment.start.epoch == number
            if is_within and segment.global_batch != parts[-1].global_batch:
                done = segment.start.done
                parts.append(ElasticEpoch(ordered, nodes, segment.global_batch, done))
        return parts[0] if len(parts) == 1 else JoinedEpoch(parts)

    def _single_passes(
        self, number: int, segment: Segment
    ) -> tuple[Interleaving, list[SinglePass]]:
        streams, unit, nodes = self.streams, self._unit(segment), segment.canonical_nodes
        unit_of_node = 1 if self._method == "per_stream" else unit
        selections = [streams.select(number, stream) for stream in range(len(streams.sizes))]
        samples = [
            SinglePass(
                streams.order_stream(selection, number, nodes, stream, streams.epoch_size),
                streams.stream_canonical_nodes(selection.size, nodes),
                unit_of_node,
            )
            for stream, selection in enumerate(selections)
        ]
        return Interleaving([-(-selection.size // unit) for selection in selections]), samples

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
        passes = self.streams.repeat(segment.canonical_nodes, epoch + (step > 0))
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

    def step_of(self, position: Position, segments: Sequence[Segment]) -> int:
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
        if isinstance(mixture, Mixture):
            mixture.check_changeable()
        if len({segment.global_batch for segment in segments}) > 1:
            raise ConfigError(
                "set_proportions after a change of the global batch, on which the steps of a change depend: "
                "begin a new run"
            )
        return self.changed_by_hand(segments, position, proportions)

    def with_global_batch(
        self, segments: Sequence[Segment], position: Position, global_batch: int
    ) -> list[Segment]:
        changed = any(segment.proportions is not None for segment in segments)
        if self._method != "random" or changed or isinstance(self.streams.mixture, Curriculum):
            return super().with_global_batch(segments, position, global_batch)
        new = replace(segments[-1], start=position, global_batch=global_batch)
        return [*(segment for segment in segments if segment.start < position), new]
