"""Progress of a pipeline, from which a state continues it.

A stage may hold samples: of a batch that is not full, or that is being unbatched. While no stage holds any,
the pipeline is at rest, and the number of samples taken from the source describes its position. At other
times its position is a number of outputs after the last rest, and it returns there by producing them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamplug.adapters import join_records
from streamplug.errors import StateError
from streamplug.run import Loop

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


@dataclass(frozen=True, slots=True)
class RankPosition:
    """Position of a rank in a loop.

    Attributes:
        epoch: Epoch of the source.
        step: Step of the source at which its processes begin.
        parts: Position of each process of the rank from there on; none if they begin there.
        given: Number of processes that have made one output since then.
        loader: Position of the stages of the loader; None if they hold nothing.
    """

    epoch: int
    step: int
    parts: Sequence[PipelinePosition] = ()
    given: int = 0
    loader: PipelinePosition | None = None

    @property
    def at_rest(self) -> bool:
        """Whether epoch and step describe the position completely."""
        return not self.parts and self.loader is None

    def to_json(self) -> str:
        """Return text of JSON."""
        if self.at_rest:
            return f"[{self.epoch}, {self.step}, [], 0, null]"
        parts = [part.to_json() for part in self.parts]
        loader = None if self.loader is None else self.loader.to_json()
        return json.dumps([self.epoch, self.step, parts, self.given, loader])

    @classmethod
    def from_json(cls, saved: Any) -> RankPosition:
        """Return the position of what `to_json` returned, as parsed.

        Raises:
            StateError: If it is invalid.
        """
        if not isinstance(saved, list) or len(saved) != 5 or not isinstance(saved[2], list):
            raise StateError(f"the state has an invalid position {saved!r:.80}")
        epoch, step, parts, given, loader = saved
        for name, number in (("epoch", epoch), ("step", step), ("given", given)):
            if type(number) is not int or not 0 <= number < _MAX_COUNT:
                raise StateError(f"the state has {name}={number!r:.80}, expected a whole number")
        positions = [PipelinePosition.from_json(part) for part in parts]
        at_loader = None if loader is None else PipelinePosition.from_json(loader)
        return cls(epoch, step, positions, given, at_loader)


_STAGES = ("stages", "loader_stages")
"""Names of the stages of the pipeline and of the loader in a state."""


@dataclass(frozen=True, slots=True)
class SavedPosition:
    """What a state has.

    Attributes:
        order: State of the source.
        text: Text of the position, as in the state.
        position: Position of this rank; None if the state of the source is sufficient.
        stages: Names of the stages of the pipeline.
        loader_stages: Names of the stages of the loader; None without a loader.
    """

    order: Mapping[str, Any]
    text: str = ""
    position: RankPosition | None = None
    stages: Any = None
    loader_stages: Any = None

    @classmethod
    def parse(cls, saved: Any, rank: int, ranks: int) -> SavedPosition:
        """Parse a state of integers and a text, or one of an earlier release, for a rank.

        Raises:
            StateError: If it is damaged, or of other ranks.
        """
        if not isinstance(saved, Mapping):
            raise StateError(f"a state is what state_dict() returned, not {type(saved).__name__}")
        old = (*_STAGES, "rank", "parts", "given", "loader")
        order = {name: v for name, v in saved.items() if name not in ("pipeline", *old)}
        text = saved.get("pipeline", "")
        if saved.get("parts") or saved.get("loader"):
            text = _convert_old(saved, rank, ranks)
        if not text:
            return cls(order)
        try:
            fields = json.loads(text)
            records = {int(rank): record for rank, record in fields["ranks"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise StateError(
                f"the state has pipeline={text!r:.60}, which is no text of positions: {error!r:.80}: it is "
                "truncated, or was changed"
            ) from None
        if fields.get("num_ranks") != ranks or rank not in records:
            raise StateError(
                f"the state is of the ranks {sorted(records)} of {fields.get('num_ranks')}, in the middle of "
                f"their batches, and this is rank {rank} of {ranks}: take as many until the epoch ends; "
                "without a process group of torch, each rank has a state of its own"
            )
        position = RankPosition.from_json(records[rank])
        return cls(order, text, position, *(fields.get(name) for name in _STAGES))

    def to_state(self) -> dict[str, Any]:
        """Return the state, of integers and a text."""
        return {**self.order, "pipeline": self.text}


def _convert_old(saved: Mapping[str, Any], rank: int, ranks: int) -> str:
    """Return the text of the position in a state of an earlier release."""
    try:
        step = saved["sample_in_epoch"] // saved["global_batch"]
        own, number = saved.get("rank", [rank, ranks])
        parts, given = saved.get("parts", []), saved.get("given", 0)
        record = json.dumps([saved["epoch"], step, parts, given, saved.get("loader")])
        fields = {name: saved.get(name) for name in _STAGES}
        return join_records({**fields, "num_ranks": number}, {own: record})
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise StateError(f"the state has no position: {error!r:.80}: it was changed") from None
