"""Change of a run from epochs of exact counts to proportions by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, StateError
from streamplug.plan.curriculum import (
    Curriculum,
    CurriculumChange,
    check_proportions,
    parse_changes,
)
from streamplug.plan.epoch import Epoch
from streamplug.plan.mixture import Mixture
from streamplug.plan.partition import Place
from streamplug.plan.stream_samples import StreamSamples
from streamplug.types import Int64, World

_MAX_STEP = 1 << 62  # exclusive upper bound of steps of a run


@dataclass(frozen=True, slots=True)
class ChangedMixture:
    """A mixture up to a step of the run, and a curriculum from it on, whose steps count from there."""

    before: Mixture
    after: Curriculum
    step: int

    @property
    def epoch_size(self) -> int:
        return self.before.epoch_size

    def identity(self) -> dict[str, Any]:
        return self.before.identity()

    def changes_until(self, step: int) -> list[dict[str, Any]]:
        """Return the changes up to and including a step of the run as JSON values."""
        changes = self.after.changes_until(step - self.step)
        return [{**change, "step": change["step"] + self.step} for change in changes]

    def with_change(self, step: int, proportions: Sequence[float]) -> ChangedMixture:
        return replace(self, after=self.after.with_change(step - self.step, proportions))


StreamMixture = Mixture | Curriculum | ChangedMixture
"""What a run takes of its streams."""


def change_mixture(
    mixture: StreamMixture, sizes: Sequence[int], step: int, proportions: Sequence[float]
) -> Curriculum | ChangedMixture:
    """Return a mixture whose streams, of `sizes` samples, have other proportions from a step of the run on.

    Raises:
        ConfigError: If epochs are not made of proportions of whole streams, or the new ones are invalid.
    """
    if not isinstance(mixture, Mixture):
        return mixture.with_change(step, proportions)
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
    change = CurriculumChange(step, check_proportions(proportions, sizes))
    return _with_changes(mixture, sizes, [change])


def resume_mixture(
    mixture: StreamMixture,
    saved: Mapping[str, Any],
    sizes: Sequence[int],
    step_of_run: Callable[[StreamMixture], int],
    *,
    within_step: bool = False,
) -> StreamMixture:
    """Return the mixture with which a run began, with the changes of a state up to its step of the run.

    That step is what `step_of_run` returns for the mixture with the changes of the state alone. Changes that
    are planned at that step are those of `mixture`, unless the state is `within_step`.

    Raises:
        StateError: If they are invalid, incomplete, or those of another curriculum.
    """
    past, count = saved.get("curriculum"), saved.get("curriculum_changes")
    num_saved = len(past) if isinstance(past, list) else 0
    if count not in (None, num_saved):
        # Checkpoints by key load only the keys that the state of a new run has.
        raise StateError(
            f"the state has {num_saved} of {count!r:.20} changes of its curriculum: it was not loaded whole; "
            "save it as one value, such as json.dumps(state)"
        )
    if isinstance(mixture, Curriculum):
        alone = replace(mixture, changes=parse_changes(past, sizes))
        step = step_of_run(alone)
        return mixture.resume(saved, step, step + within_step)
    if past is None:
        return mixture
    step = step_of_run(mixture)
    saved_changes = parse_changes(past, sizes, from_start=False)
    changes = [change for change in saved_changes if change.step <= step]
    if isinstance(mixture, Mixture):  # at once: a state may have many
        return _with_changes(mixture, sizes, changes) if changes else mixture
    for change in changes:
        mixture = mixture.with_change(change.step, change.proportions)
    return mixture


def keep_first_changes(
    mixture: StreamMixture, initial: StreamMixture, sizes: Sequence[int], count: int
) -> StreamMixture:
    """Return a mixture with only the first `count` changes by hand; `initial` is that without any."""
    if isinstance(mixture, Mixture):
        return mixture
    by_hand = [change for change in mixture.changes_until(_MAX_STEP) if "by_hand" in change]
    if count >= len(by_hand):
        return mixture
    # A change by hand may have replaced a planned one, which applies again.
    kept = initial
    for change in by_hand[:count]:
        kept = change_mixture(kept, sizes, change["step"], change["proportions"])
    return kept


def _with_changes(
    mixture: Mixture, sizes: Sequence[int], changes: Sequence[CurriculumChange]
) -> ChangedMixture:
    """Return a mixture with changes by hand, sorted by their step of the run."""
    first = changes[0].step
    relative = tuple(replace(change, step=change.step - first, by_hand=True) for change in changes)
    return ChangedMixture(mixture, Curriculum(relative, mixture.epoch_size, tuple(sizes)), first)


class ContinuedSamples(StreamSamples):
    """The samples of one epoch from number `used` up to number `end`, then those of others from 0."""

    def __init__(self, first: StreamSamples, used: int, end: int, then: StreamSamples) -> None:
        self._first, self._then = first, then
        self._used, self._rest = used, max(end - used, 0)

    def samples(self, numbers: Int64) -> Int64:
        return self._of_both(numbers, lambda samples, own: samples.samples(own))

    def canonical_nodes(self, numbers: Int64) -> Int64:
        return self._of_both(numbers, lambda samples, own: samples.canonical_nodes(own))

    def _of_both(self, numbers: Int64, get: Callable[[StreamSamples, Int64], Int64]) -> Int64:
        values, is_first = np.empty_like(numbers), numbers < self._rest
        if is_first.any():
            values[is_first] = get(self._first, numbers[is_first] + self._used)
        if not is_first.all():
            values[~is_first] = get(self._then, numbers[~is_first] - self._rest)
        return values

    def numbers(self, sample: int, first: int, last: int) -> list[int]:
        used, rest = self._used, self._rest
        numbers = [
            number - used
            for number in self._first.numbers(sample, first + used, min(last, rest) + used)
        ]
        later = self._then.numbers(sample, max(first - rest, 0), max(last - rest, 0))
        return numbers + [number + rest for number in later]


class JoinedEpoch(Epoch):
    """Epoch of the steps of one before step `start`, and of those of another, counted from it, after."""

    def __init__(self, before: Epoch, start: int, after: Epoch) -> None:
        self._before, self._start, self._after = before, start, after
        self.steps = start + after.steps

    def ids(self, world: World, batch: int, steps: Int64) -> Int64:
        is_before = steps < self._start
        ids = np.empty((len(steps), batch), np.int64)
        ids[is_before] = self._before.ids(world, batch, steps[is_before])
        ids[~is_before] = self._after.ids(world, batch, steps[~is_before] - self._start)
        return ids

    def where(self, world: World, batch: int, sample: int) -> list[Place]:
        places = self._before.where(world, batch, sample)
        return [place for place in places if place.step < self._start] + [
            replace(place, step=place.step + self._start)
            for place in self._after.where(world, batch, sample)
        ]
