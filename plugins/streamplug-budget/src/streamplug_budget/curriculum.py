"""Epochs of batches of limited cost whose proportions change at global batches of the run.

An epoch is `epoch_size` samples of the run, so it is found without the epochs before it that have no change.
The sample at which a change falls depends on the costs of the samples before it, though, and the epoch of a
planned change on the numbers of batches of all epochs before it. At a change, the samples of a window that
were not read yet become the first ones of their streams after it. So what is read before a change does not
depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from streamplug_mixing import Curriculum, CurriculumChange, whole_shares

from streamplug.errors import StateError
from streamplug.plan import Position, Segment
from streamplug_budget.epoch import BudgetEpoch, EpochPart
from streamplug_budget.part_planner import PartPlanner
from streamplug_budget.sequence import Continuation, CurriculumSequences, RunStreams

# An epoch costs about 1 ms and 1 us per sample to plan, and a state tells how many are needed. More than a
# hundred epochs of a large data set, or hours of planning, are a damaged state rather than a long run.
_MAX_PLANNED_EPOCHS = 100_000
_MAX_PLANNED_SAMPLES = 10**10
_ALLOWED_EPOCHS = 100  # of any size


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Beginning of an epoch, before the changes that fall on it; the first one is after these.

    Attributes:
        epoch: Number of the epoch.
        step: Global batches of the run before it; None if epochs before it were left out.
        changes: Changes before it, planned ones and those by hand; the last one holds.
        num_planned: Number of planned changes before it.
        num_segments: Number of changes before it that segments of the run have.
        continuations: How each sequence goes on at the last change.
    """

    epoch: int
    step: int | None
    changes: tuple[Segment, ...]
    num_planned: int
    num_segments: int
    continuations: Sequence[Continuation]


class BudgetCurriculum:
    """Epochs of a run with a curriculum, whose segments may have proportions in place of planned ones."""

    def __init__(
        self,
        curriculum: Curriculum,
        parts: PartPlanner,
        segments: Sequence[Segment],
        starts: Sequence[EpochStart] = (),
    ) -> None:
        """Plan epochs.

        Args:
            curriculum: The curriculum.
            parts: Plans parts of epochs.
            segments: The segments of the run.
            starts: Beginnings of epochs that are known, by their number.
        """
        self._curriculum, self._parts, self._first = curriculum, parts, segments[0]
        self._segments = _changes(segments)
        self._planned, self._epoch_size = curriculum.changes, curriculum.epoch_size
        self._micro_batches = parts.micro_batches
        self._streams = RunStreams(parts.streams, parts.canonical_nodes)
        self._starts = [*starts] or [self._start_of_run()]

    def with_segments(self, segments: Sequence[Segment]) -> BudgetCurriculum:
        """Return the epochs with other segments, which has the beginnings that do not depend on these."""
        changes = _changes(segments)
        same = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._segments, changes))
        )
        others = [segment.start for segment in [*self._segments[same:], *changes[same:]]]
        if not others:
            return self
        starts = [start for start in self._starts if Position(start.epoch) <= min(others)]
        if Position() in others:  # the start of the run is after the changes that fall on it
            starts = []
        return BudgetCurriculum(self._curriculum, self._parts, segments, starts)

    def epoch(self, number: int) -> BudgetEpoch:
        """Return an epoch."""
        parts, following = self._plan(self._start(number))
        self._note(following)
        return BudgetEpoch(parts, self._micro_batches)

    def position_of(self, step: int) -> Position:
        """Return the position before a global batch of the run.

        Raises:
            StateError: If too many epochs would have to be planned.
        """
        starts = [s for s in self._starts if s.step is not None and s.step <= step]
        here, num_epochs = starts[-1], 0
        while True:
            before = here.step or 0
            if before == step:
                return Position(here.epoch)
            num_epochs += 1
            self._check(f"global batch {step}", num_epochs + self._min_epochs(before, step))
            here = self._plan_next(here)
            if step < (here.step or 0):
                return Position(here.epoch - 1, (step - before) * self._micro_batches)

    def planned(self, until: Position) -> list[Segment]:
        """Return the planned changes up to a position as segments.

        Raises:
            StateError: If too many epochs would have to be planned.
        """
        start = self._start(until.epoch)
        changes = [change for change in start.changes if not change.by_hand]
        for change in self._planned[start.num_planned :]:
            position = Position(until.epoch, self._place_of_planned(start, change))
            if position > until:
                break
            changes.append(self._segment(position, change))
        return changes

    # -- beginnings of epochs --------------------------------------------------------

    def _start_of_run(self) -> EpochStart:
        size, streams = self._epoch_size, len(self._curriculum.sizes)
        count = self._parts.model.count_sequences(size, self._parts.canonical_nodes)
        continuation = Continuation(0, (np.empty(0, np.int64),) * streams, (0,) * streams)
        start = EpochStart(0, 0, (), 0, 0, [continuation] * count)
        _, start = self._next_change(start) or (0, start)  # that of step 0
        return start

    def _start(self, number: int) -> EpochStart:
        """Return the beginning of an epoch."""
        here = next(start for start in reversed(self._starts) if start.epoch <= number)
        num_epochs = 0
        while here.epoch < number:
            if here.num_planned < len(self._planned):
                last = self._planned[-1].step
                least = min(number - here.epoch - 1, self._min_epochs(here.step or 0, last))
            else:
                segments = self._segments[here.num_segments : here.num_segments + 1]
                epoch = min([number, *(segment.start.epoch for segment in segments)])
                if epoch > here.epoch:  # there is no change up to its beginning
                    here = replace(here, epoch=epoch, step=None)
                    continue
                least = 0
            num_epochs += 1
            self._check(f"epoch {number}", num_epochs + least)
            here = self._plan_next(here)
        return here

    def _plan_next(self, start: EpochStart) -> EpochStart:
        """Return the beginning of the next epoch."""
        _, following = self._plan(start)
        self._note(following)
        return following

    def _note(self, start: EpochStart) -> None:
        if start.epoch > self._starts[-1].epoch:
            self._starts.append(start)

    def _min_epochs(self, step: int, end: int) -> int:
        """Return how many whole epochs there are at least between two global batches of the run."""
        max_steps = self._epoch_size // self._micro_batches + 2  # each batch has a sample
        return (end - step) // max_steps

    def _check(self, what: str, epochs: int) -> None:
        """Raise `StateError` if a state needs too many epochs to be planned."""
        max_epochs = min(_MAX_PLANNED_EPOCHS, _MAX_PLANNED_SAMPLES // self._epoch_size)
        max_epochs = max(max_epochs, _ALLOWED_EPOCHS)
        if epochs > max_epochs:
            raise StateError(
                f"{what} of a curriculum: more than {max_epochs} epochs of {self._epoch_size} samples would "
                "have to be planned to find where it begins; the state was changed, or its run is too long "
                "for this epoch_size=: load the model alone, and begin a run with a larger one"
            )

    # -- epochs ----------------------------------------------------------------------

    def _plan(self, start: EpochStart) -> tuple[list[EpochPart], EpochStart]:
        """Return the parts of an epoch, and the beginning of the next one."""
        parts, here, done, is_over = list[EpochPart](), start, 0, False
        count = len(start.continuations)
        firsts, ends = (
            [-(-(number * self._epoch_size - sequence) // count) for sequence in range(count)]
            for number in (start.epoch, start.epoch + 1)
        )
        while not is_over:
            change = self._next_change(here)
            most = None if change is None else change[0] - done
            shares = whole_shares(here.changes[-1].proportions or ())
            slots = [range(*bounds) for bounds in zip(firsts, ends)]
            sequences = CurriculumSequences(self._streams, shares, here.continuations, slots)
            if most == 0:  # at the beginning of the epoch, before which all samples were read
                progress = iter([(sequence, 0, np.empty(0, np.int64)) for sequence in range(count)])
            else:
                past = [(each.start, each.proportions) for each in here.changes]
                part = self._parts.part(start.epoch, sequences, most, key=str(past))
                parts.append(part)
                done += -(-part.size // self._micro_batches) * self._micro_batches
                progress, is_over = part.progress(), part.size == part.order.size
            if change is not None and not is_over:
                continuations = [sequences.continue_after(*each) for each in progress]
                firsts = [continuation.slot for continuation in continuations]
                here = replace(change[1], continuations=continuations)
        step = None if start.step is None else start.step + done // self._micro_batches
        return parts, replace(here, epoch=start.epoch + 1, step=step)

    def _next_change(self, here: EpochStart) -> tuple[int, EpochStart] | None:
        """Return the position in an epoch of the next change, and `here` after it; None if there is none.

        A change by hand takes the place of a planned one.
        """
        planned = self._planned[here.num_planned : here.num_planned + 1]
        segments = [
            (self._place_of_segment(here, segment), segment)
            for segment in takewhile(
                lambda segment: segment.start.epoch <= here.epoch,
                self._segments[here.num_segments :],
            )
        ]
        places = [self._place_of_planned(here, change) for change in planned]
        if not (planned or segments):
            return None
        place = min([*places, *(place for place, _ in segments)])
        position = Position(here.epoch, place)
        found = [segment for of_segment, segment in segments if of_segment == place]
        is_planned = places == [place]
        changes = [*found, *(self._segment(position, c) for c in planned if is_planned)]
        by_hand = [change for change in changes if change.by_hand]
        change = replace((by_hand or changes)[-1], start=position)
        return place, replace(
            here,
            changes=(*here.changes, change),
            num_planned=here.num_planned + is_planned,
            num_segments=here.num_segments + len(found),
        )

    def _place_of_planned(self, start: EpochStart, change: CurriculumChange) -> int:
        """Return the position of a planned change in an epoch, in batches; it may be after its end."""
        return (change.step - (start.step or 0)) * self._micro_batches

    def _place_of_segment(self, start: EpochStart, segment: Segment) -> int:
        """Return the position of a segment in an epoch, in batches: 0 from the end of the one before."""
        is_within = segment.start.epoch == start.epoch
        return segment.start.done // self._micro_batches * self._micro_batches if is_within else 0

    def _segment(self, position: Position, change: CurriculumChange) -> Segment:
        return replace(self._first, start=position, proportions=change.proportions, by_hand=False)


def _changes(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments that have proportions."""
    return [segment for segment in segments if segment.proportions is not None]
