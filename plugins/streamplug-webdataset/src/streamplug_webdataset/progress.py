"""Progress of a pipeline, from which a state continues it.

A stage may hold samples: of a batch that is not full, or that is being unbatched. While no stage holds any,
the pipeline is at rest, and the number of samples taken from the source describes its position. At other
times its position is a number of outputs after the last rest, and it returns there by producing them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamplug.errors import StateError
from streamplug.run.loop import Loop

_MAX_COUNT = 1 << 62


@dataclass(frozen=True, slots=True)
class PipelinePosition:
    """Position of one process in an epoch.

    Attributes:
        used: Samples, or batches, taken from the source when the pipeline was last at rest.
        after: Outputs since then.
        counts: Counters of stages at that time, as pairs of stage number and count.
    """

    used: int = 0
    after: int = 0
    counts: tuple[tuple[int, int], ...] = ()

    @property
    def at_rest(self) -> bool:
        """Whether `used` describes the position completely."""
        return not self.after and not self.counts

    def to_json(self) -> list[Any]:
        """Return plain JSON values."""
        return [self.used, self.after, [list(pair) for pair in self.counts]]

    @classmethod
    def from_json(cls, saved: Any) -> PipelinePosition:
        """Return the position that `to_json` returned.

        Raises:
            StateError: If it is invalid.
        """
        try:
            used, after, counts = saved
            position = cls(used, after, tuple((stage, count) for stage, count in counts))
        except (TypeError, ValueError):
            raise StateError(f"the state has an invalid position {saved!r:.80}") from None
        numbers = [position.used, position.after, *(n for pair in position.counts for n in pair)]
        if not all(type(n) is int and 0 <= n < _MAX_COUNT for n in numbers):
            raise StateError(f"the state has an invalid position {saved!r:.80}")
        return position


class Progress:
    """Counters of a running pipeline.

    Attributes:
        used: Samples taken from the source since the start of the epoch.
        held: Number of stages that hold samples.
        counts: Counters of stages, by stage number.
        made: Outputs of this loop.
        epoch: Epoch of the source; None before the first sample.
        first: Step of the source at which the loop began.
        mark: Position of the source, updated by the source.
        rest_mark: Value of `mark` when the pipeline was last at rest.
        loop: Loop over the source, if this process has it; None before the first sample.
        done: Whether all outputs of the loop were yielded.
        has_failed: Whether it has ended with an error before it read anything.
    """

    def __init__(self, start: PipelinePosition) -> None:
        """Start at a position."""
        self.used, self.held, self.made = start.used, 0, 0
        self.counts: dict[int, int] = dict(start.counts)
        self.epoch: int | None = None
        self.first = 0
        self.mark: Any = None
        self.rest_mark: Any = None
        self.loop: Loop | None = None
        self.done = self.has_failed = False
        self._rest, self._rest_counts, self._after = start.used, start.counts, 0
        self._to_skip = start.after

    def count_output(self) -> bool:
        """Count an output of the last stage; return whether it is new, not one produced again.

        After a new one, the next loop begins an epoch after that of this loop.
        """
        if self.held:
            self._after += 1
        else:
            self._rest, self._after = self.used, 0
            self._rest_counts = tuple(self.counts.items()) if self.counts else ()
            self.rest_mark = self.mark
        if self._to_skip:
            self._to_skip -= 1
            return False
        self.made += 1
        if self.loop is not None:
            self.loop.lead()
        return True

    @property
    def position(self) -> PipelinePosition:
        """The position after the last output."""
        return PipelinePosition(self._rest, self._after, self._rest_counts)


def positions_of(saved: Mapping[str, Any]) -> list[PipelinePosition]:
    """Return the positions of the processes in a state; none if the state of the source is sufficient.

    Raises:
        StateError: If they are invalid.
    """
    positions = saved.get("parts", [])
    if not isinstance(positions, list):
        raise StateError(f"the state has parts={positions!r:.80}, expected a list")
    return [PipelinePosition.from_json(position) for position in positions]
