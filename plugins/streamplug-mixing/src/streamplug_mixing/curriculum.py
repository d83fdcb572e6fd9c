"""Proportions of the streams that change at given steps of a run."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.plan import Selection, check_proportions
from streamplug.types import Int64
from streamplug_mixing.interleave import MAX_SLOTS, Interleaving

MAX_STEP_DIGITS = 12


@dataclass(frozen=True, slots=True)
class CurriculumChange:
    """Proportions of the streams from a step of the run on."""

    step: int
    proportions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Proportions of the streams as a step function; the first of the sorted `changes` is at step 0."""

    changes: tuple[CurriculumChange, ...]
    epoch_size: int
    sizes: tuple[int, ...]

    @classmethod
    def parse(
        cls,
        proportions_by_step: Mapping[int | str, Sequence[float]],
        sizes: Sequence[int],
        epoch_size: int,
    ) -> Curriculum:
        """Parse proportions of the streams by the step from which they apply."""
        if not isinstance(proportions_by_step, Mapping):
            raise ConfigError(
                f"curriculum={proportions_by_step!r:.100}: expected proportions by step, {{0: [...]}}"
            )
        changes = _sort_changes(
            CurriculumChange(_parse_step(key), check_proportions(proportions, sizes))
            for key, proportions in proportions_by_step.items()
        )
        return cls(changes, epoch_size, tuple(sizes))

    def identity(self) -> dict[str, Any]:
        return dict.fromkeys(("choose", "sampling_method", "sampling_granularity", "shares"))

    def select(
        self,
        starts: Int64,
        stream_shards: Sequence[int],
        seed: int,
        epoch: int,
        stream: int | None = None,
        *,
        shuffled: bool,
    ) -> Selection:
        raise ConfigError("curriculum= reads streams pass after pass: no epoch is taken of them")


def _parse_step(key: Any) -> int:
    # Keys of JSON objects are strings.
    is_number = isinstance(key, (int, np.integer)) and not isinstance(key, bool)
    text = key if isinstance(key, str) else str(key) if is_number else ""
    if not (text.isdecimal() and len(text) <= MAX_STEP_DIGITS):
        raise ConfigError(f"curriculum: {reprlib.repr(key)} is not a step, a whole number from 0")
    return int(text)


def _sort_changes(changes: Iterable[CurriculumChange]) -> tuple[CurriculumChange, ...]:
    ordered = sorted(changes, key=lambda change: change.step)
    steps = [change.step for change in ordered]
    if not steps or steps[0] or len(set(steps)) < len(steps):
        raise ConfigError(f"curriculum: the steps {steps} must begin at 0 and be distinct")
    return tuple(ordered)


def whole_shares(proportions: Sequence[float]) -> list[int]:
    """Return integers in the ratio of decimal numbers: 9 and 1 for 0.9 and 0.1."""
    exact = [Fraction(repr(value)) for value in proportions]
    common = lcm(*(share.denominator for share in exact))
    shares = [int(share * common) for share in exact]
    if sum(shares) >= MAX_SLOTS:
        total = sum(shares)
        shares = [share * (MAX_SLOTS - len(shares) - 1) // total for share in shares]
    return shares


class CurriculumSchedule:
    """Unbounded schedule of a curriculum; streams continue where they were at each change."""

    def __init__(self, changes: Sequence[CurriculumChange], slots_per_step: int) -> None:
        self._starts = np.array([change.step * slots_per_step for change in changes], np.int64)
        self._shares = [Interleaving(whole_shares(change.proportions)) for change in changes]
        # Turns that each stream had before each change.
        self._turns_before_change = [[0] * len(changes[0].proportions)]
        for share, length in zip(self._shares, np.diff(self._starts).tolist()):
            turns = zip(self._turns_before_change[-1], share.turns_before(length))
            self._turns_before_change.append([before + more for before, more in turns])

    def streams_at(self, slots: Int64) -> tuple[Int64, Int64]:
        streams, turns = np.empty_like(slots), np.empty_like(slots)
        change = np.searchsorted(self._starts, slots, side="right") - 1
        for number in np.unique(change).tolist():
            of_change = change == number
            start, turns_before = self._starts[number], np.array(self._turns_before_change[number])
            stream, turn = self._shares[number].streams_at(slots[of_change] - start)
            streams[of_change], turns[of_change] = stream, turn + turns_before[stream]
        return streams, turns

    def slot_of(self, stream: int, turn: int) -> int:
        number = max(i for i, had in enumerate(self._turns_before_change) if had[stream] <= turn)
        at = self._shares[number].slot_of(stream, turn - self._turns_before_change[number][stream])
        return int(self._starts[number]) + at

    def turns_before(self, slot: int) -> list[int]:
        number = int(np.searchsorted(self._starts, slot, side="right")) - 1
        turns = self._shares[number].turns_before(slot - int(self._starts[number]))
        return [a + b for a, b in zip(self._turns_before_change[number], turns)]
