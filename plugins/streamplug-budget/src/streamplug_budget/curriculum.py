"""Epochs of batches of limited cost whose proportions change at global batches of the run.

An epoch is `epoch_size` samples of the run, so it is found without the epochs before it, except that the
sample at which a change falls depends on the costs of all samples before it. At a change, the samples of a
window that were not read yet become the first ones of their streams after it. So what is read before a change
does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from streamplug.errors import StateError
from streamplug.plan import Curriculum, CurriculumChange, CurriculumEpochs, Epoch
from streamplug.plan.curriculum import whole_shares
from streamplug.types import Int64, World
from streamplug_budget.bin_counts import complete_global_batch, count_bins_until
from streamplug_budget.epoch import BudgetEpoch, EpochPart
from streamplug_budget.sequence import Continuation, CurriculumSequences, RunStreams
from streamplug_budget.windows import EpochWindows

# An epoch costs about 1 ms and 1 us per sample to plan, and a state tells how many are needed. More than a
# hundred epochs of a large data set, or hours of planning, are a damaged state rather than a long run.
_MAX_PLANNED_EPOCHS = 100_000
_MAX_PLANNED_SAMPLES = 10**10
_ALLOWED_EPOCHS = 100  # of any size


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Beginning of an epoch.

    Attributes:
        step: Global batches of the run before it.
        changes: Number of changes up to it.
        continuations: How each sequence goes on at the latest of them.
    """

    step: int
    changes: int
    continuations: Sequence[Continuation]


class BudgetCurriculum(CurriculumEpochs):
    """Epochs of a run with a curriculum.

    Attributes:
        starts: Beginnings of the first epochs, as far as they are known.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        streams: RunStreams,
        micro_batches: int,
        starts: list[EpochStart],
        *,
        make_windows: Callable[[int, CurriculumSequences], EpochWindows],
        cached: Callable[[str, Callable[[], Int64]], Int64],
    ) -> None:
        """Plan epochs.

        Args:
            curriculum: The curriculum.
            streams: The streams.
            micro_batches: Batches of a global batch over all ranks.
            starts: The beginning of the first epoch, or of more of them.
            make_windows: Returns the windows of a part of an epoch; it can be pickled.
            cached: Returns the result of a function, perhaps from a file, by a key.
        """
        self._changes, self._epoch_size = curriculum.changes, curriculum.epoch_size
        self._streams, self._micro_batches = streams, micro_batches
        self._make_windows, self._cached, self.starts = make_windows, cached, starts
        self._latest: tuple[int, list[EpochPart]] | None = None

    def epoch(self, number: int, world: World) -> Epoch:
        if self._latest is None or self._latest[0] != number:
            start = self._start(number, self._changes[-1].step)
            parts, following = self._plan(number, start)
            self._latest = number, parts
            if len(self.starts) > number:  # it is no earlier beginning
                self.starts[number + 1 :] = [following]
        return BudgetEpoch(self._latest[1], self._micro_batches, world)

    def steps_before(self, number: int, most: int) -> int:
        return min(self._start(number, most).step, most)

    def _start(self, number: int, most: int) -> EpochStart:
        """Return the beginning of an epoch, or of an earlier one after at least `most` global batches."""
        starts = list(self.starts)  # another thread may plan, too
        max_epochs = min(_MAX_PLANNED_EPOCHS, _MAX_PLANNED_SAMPLES // self._epoch_size)
        max_starts = len(starts) + max(max_epochs, _ALLOWED_EPOCHS)
        max_steps = self._epoch_size // self._micro_batches + 2  # each batch has a sample
        while len(starts) <= number and starts[-1].step < most:
            min_epochs = min(number - len(starts), (most - starts[-1].step) // max_steps)
            if len(starts) + min_epochs >= max_starts:
                raise StateError(
                    f"epoch {number} of a curriculum: more than {max_starts - len(self.starts)} epochs of "
                    f"{self._epoch_size} samples would have to be planned to find where it begins; the state "
                    "was changed, or its run is too long for this epoch_size=: load the model alone, and "
                    "begin a run with a larger one"
                )
            starts.append(self._plan(len(starts) - 1, starts[-1])[1])
        self.starts[:] = starts
        return starts[min(number, len(starts) - 1)]

    def _plan(self, epoch: int, start: EpochStart) -> tuple[list[EpochPart], EpochStart]:
        """Return the parts of an epoch, and the beginning of the next one."""
        parts: list[EpochPart] = []
        step, changes, continuations = start.step, start.changes, start.continuations
        count = len(continuations)
        firsts, ends = (
            [-(-(number * self._epoch_size - sequence) // count) for sequence in range(count)]
            for number in (epoch, epoch + 1)
        )
        is_over = False
        while not is_over:
            next_step = self._changes[changes].step if changes < len(self._changes) else None
            most = None if next_step is None else (next_step - step) * self._micro_batches
            shares = whole_shares(self._changes[changes - 1].proportions)
            slots = [range(*bounds) for bounds in zip(firsts, ends)]
            sequences = CurriculumSequences(self._streams, shares, continuations, slots)
            part = self._make_part(epoch, changes, sequences, most)
            parts.append(part)
            is_over = part.size == part.order.size
            step += -(-part.size // self._micro_batches)
            if step == next_step:
                continuations = [
                    sequences.continue_after(*progress) for progress in part.progress()
                ]
                firsts = [continuation.slot for continuation in continuations]
                changes += 1
        return parts, EpochStart(step, changes, continuations)

    def _make_part(
        self, epoch: int, changes: int, sequences: CurriculumSequences, most: int | None
    ) -> EpochPart:
        """Return the part of an epoch after a number of changes, of at most `most` bins."""
        make_windows = partial(self._make_windows, epoch, sequences)
        windows = make_windows()
        past = [(change.step, change.proportions) for change in self._changes[:changes]]
        counts = self._cached(
            f"{epoch} {past} {most}", partial(count_bins_until, windows, make_windows, most)
        )
        completed = complete_global_batch(windows, counts, self._micro_batches)
        return EpochPart(windows, completed, most)


def start_run(streams: int, sequences: int) -> EpochStart:
    """Return the beginning of the first epoch."""
    continuation = Continuation(0, (np.empty(0, np.int64),) * streams, (0,) * streams)
    return EpochStart(0, 1, [continuation] * sequences)


def common_starts(
    starts: Sequence[EpochStart],
    before: Sequence[CurriculumChange],
    after: Sequence[CurriculumChange],
) -> list[EpochStart]:
    """Return the beginnings of epochs up to which two curricula have the same changes."""
    return [
        start
        for start in starts
        if [change for change in before if change.step <= start.step]
        == [change for change in after if change.step <= start.step]
    ]
