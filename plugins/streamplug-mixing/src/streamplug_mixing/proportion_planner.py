"""What planners have in common whose proportions change: planned changes, and those by hand."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import replace

from streamplug.errors import StateError
from streamplug.plan import Planner, Position, Segment, check_proportions
from streamplug_mixing.curriculum import Curriculum


class ProportionPlanner(Planner):
    """Planner of runs whose proportions change, as a curriculum plans or by hand.

    Subclasses with a `Curriculum` implement `position_of`, or `planned`.
    """

    def changed_by_hand(
        self,
        segments: Sequence[Segment],
        position: Position,
        proportions: Sequence[float],
    ) -> list[Segment]:
        """Return segments with other proportions from a position on.

        Raises:
            ConfigError: If they are not proportions of the streams.
        """
        values = check_proportions(proportions, self.streams.sizes)
        new = replace(segments[0], start=position, proportions=values, by_hand=True)
        by_start = {segment.start: segment for segment in segments} | {position: new}
        return [by_start[start] for start in sorted(by_start)]

    def segments_until(self, position: Position, segments: Sequence[Segment]) -> list[Segment]:
        past = {segment.start: segment for segment in segments if segment.start <= position}
        for planned in self.planned(position, segments):
            known = past.get(planned.start)
            if known is None or known.proportions is None:
                past[planned.start] = planned
        return [past[start] for start in sorted(past)]

    def resume(
        self, saved: Sequence[Segment], position: Position, *, within_step: bool = False
    ) -> list[Segment]:
        def has_begun(segment: Segment) -> bool:
            return segment.start < position or within_step or not segment.is_planned

        past = {segment.start: segment for segment in saved if segment.start <= position}
        planned = [segment for segment in self.planned(position, saved) if has_begun(segment)]
        for segment in planned:
            known = past.get(segment.start)
            if known is None or (known.is_planned and known.proportions != segment.proportions):
                differing = [
                    [[each.start.epoch, each.start.done, *(each.proportions or ())] for each in of]
                    for of in (past.values(), planned)
                ]
                raise StateError(
                    f"the state is of another run: curriculum up to {position}: saved "
                    f"{reprlib.repr(differing[0])}, now {reprlib.repr(differing[1])}"
                )
        first, *others = past.values()
        if not has_begun(first):
            first = replace(first, proportions=None)
        return [first, *filter(has_begun, others)]

    def planned(self, until: Position, segments: Sequence[Segment]) -> list[Segment]:
        """Return the planned changes up to a position as segments."""
        mixture, planned = self.streams.mixture, list[Segment]()
        for change in mixture.changes if isinstance(mixture, Curriculum) else ():
            start = self.position_of(change.step, segments)
            if start > until:
                break
            proportions = change.proportions
            planned.append(
                replace(segments[0], start=start, proportions=proportions, by_hand=False)
            )
        return planned
