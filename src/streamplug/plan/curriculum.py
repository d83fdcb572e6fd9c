"""Curriculum: shares of the streams that change at some steps of a run."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, StateError
from streamplug.plan.apportion import LIMIT, Apportionment
from streamplug.types import Int64

_DIGITS = 12
"""A step has at most so many."""
_HUGE = 1e100


@dataclass(frozen=True, slots=True)
class Change:
    """From a step on, counted from the beginning of the run, the streams have these shares.

    Attributes:
        step: The step.
        proportions: Share of each stream, relative to the others'.
        by_hand: Whether they were given while the run stood there, not planned.
    """

    step: int
    proportions: tuple[float, ...]
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Shares of the streams as a step function.

    Attributes:
        changes: By step; the first is at step 0.
        epoch_size: Samples of an epoch, which here is but a number of steps.
        sizes: Samples of each stream.
    """

    changes: tuple[Change, ...]
    epoch_size: int
    sizes: tuple[int, ...]

    @classmethod
    def read(
        cls, given: Mapping[int | str, Sequence[float]], sizes: Sequence[int], epoch_size: int
    ) -> Curriculum:
        """Return what a user gave: proportions of the streams, by the step from which they hold.

        Args:
            given: The proportions.
            sizes: Samples of each stream.
            epoch_size: Samples of an epoch.

        Raises:
            ConfigError: If the first step is not 0, or proportions are not one per stream, or mean
                nothing.
        """
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"curriculum={given!r:.100}: expected proportions by step, {{0: [...]}}"
            )
        changes = [Change(_step(key), check_proportions(given[key], sizes)) for key in given]
        return cls(_in_order(changes), epoch_size, tuple(sizes))

    def identity(self) -> dict[str, Any]:
        """Return what a state says of the mixture, besides the changes up to its place."""
        return dict.fromkeys(("choose", "sampling_method", "sampling_granularity", "shares"))

    def until(self, step: int) -> list[dict[str, Any]]:
        """Return the changes up to a step, that one among them, as plain values."""
        return [
            {"step": change.step, "proportions": list(change.proportions)}
            | ({"by_hand": True} if change.by_hand else {})
            for change in self.changes
            if change.step <= step
        ]

    def changed(self, step: int, proportions: Sequence[float]) -> Curriculum:
        """Return this curriculum with other shares from a step on, until its next change."""
        new = Change(step, check_proportions(proportions, self.sizes), by_hand=True)
        return replace(self, changes=_in_order([new, *self._but({step})]))

    def continued(self, saved: Mapping[str, Any], step: int) -> Curriculum:
        """Return the curriculum of a run that is continued at a step: its past, and this one's future.

        Raises:
            StateError: If the state says nothing of a past, or this curriculum has another one.
        """
        past = [
            change for change in self._read_past(saved.get("curriculum")) if change.step <= step
        ]
        by_hand = {change.step for change in past if change.by_hand}
        planned = [change for change in self._but(by_hand) if change.step <= step]
        if any(change not in past for change in planned):
            raise StateError(
                f"the state is of another run: curriculum up to step {step}: "
                f"saved {reprlib.repr(saved['curriculum'])}, now {reprlib.repr(self.until(step))}"
            )
        future = [change for change in self.changes if change.step > step]
        return replace(self, changes=_in_order([*past, *future]))

    def _but(self, steps: set[int]) -> list[Change]:
        """Return the planned changes at other steps than these."""
        return [change for change in self.changes if change.step not in steps]

    def _read_past(self, past: Any) -> tuple[Change, ...]:
        try:
            changes = [
                Change(
                    _step(change["step"]),
                    check_proportions(change["proportions"], self.sizes),
                    by_hand=change.get("by_hand") is True,
                )
                for change in past
            ]
            return _in_order(changes)
        except (TypeError, KeyError, AttributeError, ConfigError) as error:
            raise StateError(
                f"the state's curriculum {reprlib.repr(past)} is none: {reprlib.repr(error)}"
            ) from None


def _step(given: Any) -> int:
    # In a file of JSON, keys are text.
    text = given if isinstance(given, str) else str(given) if type(given) is int else ""
    if not (text.isdecimal() and len(text) <= _DIGITS):
        raise ConfigError(f"curriculum: {reprlib.repr(given)} is not a step, a whole number from 0")
    return int(text)


def _in_order(changes: Sequence[Change]) -> tuple[Change, ...]:
    found = sorted(changes, key=lambda change: change.step)
    steps = [change.step for change in found]
    if not steps or steps[0] != 0 or len(set(steps)) < len(steps):
        raise ConfigError(f"curriculum: the steps {steps} must begin at 0 and differ")
    return tuple(found)


def check_proportions(proportions: Any, sizes: Sequence[int]) -> tuple[float, ...]:
    """Return a list or tuple of proportions, of streams of some sizes, as numbers.

    Raises:
        ConfigError: If they are not one per stream, not finite, below 0 or all 0, or take of a stream
            that has no samples.
    """
    if not isinstance(proportions, (list, tuple)) or not all(
        isinstance(value, (int, float)) and abs(value) < _HUGE for value in proportions
    ):
        raise ConfigError(
            f"proportions {reprlib.repr(proportions)}: expected numbers below {_HUGE:g}"
        )
    values = tuple(float(value) for value in proportions)
    if len(values) != len(sizes):
        raise ConfigError(f"{len(values)} proportions for {len(sizes)} streams")
    if not all(value >= 0 for value in values) or not any(values):
        raise ConfigError(f"proportions {list(values)}: numbers of at least 0, not all of them 0")
    for number, (value, size) in enumerate(zip(values, sizes)):
        if value and not size:
            raise ConfigError(f"stream {number} has no samples, and its proportion is {value}")
    return values


def whole_shares(proportions: Sequence[float]) -> list[int]:
    """Return whole numbers in the ratio of some decimals, as the user wrote them: 0.9, 0.1 is 9, 1."""
    exact = [Fraction(repr(value)) for value in proportions]
    common = lcm(*(share.denominator for share in exact))
    shares = [int(share * common) for share in exact]
    if sum(shares) >= LIMIT:
        total = sum(shares)
        shares = [share * (LIMIT - len(shares) - 1) // total for share in shares]
    return shares


class Lessons:
    """The schedule of a curriculum: without end; at every change the streams go on where they were."""

    def __init__(self, changes: Sequence[Change], slots_per_step: int) -> None:
        """Follow some changes, the first at step 0."""
        self._starts = np.array([change.step * slots_per_step for change in changes], np.int64)
        self._shares = [Apportionment(whole_shares(change.proportions)) for change in changes]
        # Turns that each stream had before each change.
        self._had = [[0] * len(changes[0].proportions)]
        for share, length in zip(self._shares, np.diff(self._starts).tolist()):
            self._had.append([a + b for a, b in zip(self._had[-1], share.before(length))])

    def turn(self, slots: Int64) -> tuple[Int64, Int64]:
        """Return which stream has each slot, and how many turns that stream had before."""
        streams, turns = np.empty_like(slots), np.empty_like(slots)
        part = np.searchsorted(self._starts, slots, side="right") - 1
        for number in np.unique(part).tolist():
            here = part == number
            stream, turn = self._shares[number].turn(slots[here] - self._starts[number])
            streams[here], turns[here] = stream, turn + np.array(self._had[number])[stream]
        return streams, turns

    def slot(self, stream: int, turn: int) -> int:
        """Return the slot of a stream's so-many-th turn."""
        number = max(i for i, had in enumerate(self._had) if had[stream] <= turn)
        at = self._shares[number].slot(stream, turn - self._had[number][stream])
        return int(self._starts[number]) + at

    def before(self, slot: int) -> list[int]:
        """Return how many turns each stream has before a slot."""
        number = int(np.searchsorted(self._starts, slot, side="right")) - 1
        here = self._shares[number].before(slot - int(self._starts[number]))
        return [a + b for a, b in zip(self._had[number], here)]
