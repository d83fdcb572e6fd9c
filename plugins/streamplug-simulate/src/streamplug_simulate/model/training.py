"""Training: the loop that uses the batches of all ranks, step by step, together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamplug_simulate.model.events import Events
from streamplug_simulate.model.worker import Worker


class Training:
    """The steps of one epoch: each begins when all ranks have their batch.

    Attributes:
        step: The step that is under way or waited for.
        waits: Seconds that each step was waited for since the one before ended.
        ended: Whether the last step is over.
    """

    def __init__(
        self,
        events: Events,
        workers: Callable[[Training, int], Sequence[Worker]],
        ranks: int,
        *,
        steps: int,
        seconds: float,
        ahead: bool,
        enough: Callable[[], bool],
    ) -> None:
        """Begin an epoch.

        Args:
            events: The clock.
            workers: Starts the workers of a rank.
            ranks: How many ranks there are.
            steps: How many steps the epoch has.
            seconds: What a step takes.
            ahead: Whether workers go on during a step; else they are asked when the loop wants a batch.
            enough: Says after a step whether to leave the epoch.
        """
        self._events, self._seconds, self._ahead, self._enough = events, seconds, ahead, enough
        self._steps = steps
        self._have: list[set[int]] = [set() for _ in range(ranks)]
        self._waiting = set(range(ranks))
        self._since = events.now
        self.step, self.waits, self.ended = 0, list[float](), False
        self._workers = [workers(self, rank) for rank in range(ranks)]

    def made(self, rank: int, step: int) -> None:
        """Take a batch of a rank; -1 if one of its workers has no more."""
        if step >= 0:
            self._have[rank].add(step)
        if rank in self._waiting and self._is_there(rank):
            self._take(rank)

    def _is_there(self, rank: int) -> bool:
        # A rank without a batch, as uneven ends of epochs have them, does not hold the others up.
        return self.step in self._have[rank] or self._worker(rank).ended

    def _worker(self, rank: int) -> Worker:
        workers = self._workers[rank]
        return workers[self.step % len(workers)]

    def _take(self, rank: int) -> None:
        self._waiting.discard(rank)
        self._have[rank].discard(self.step)
        if self._ahead:
            self._worker(rank).permit()
        if not self._waiting:
            now = self._events.now
            self.waits.append(now - self._since)
            self._events.at(now + self._seconds, self._end_step)

    def _end_step(self) -> None:
        self.step += 1
        if self.step == self._steps or self._enough():
            self.ended = True
            return
        self._since = self._events.now
        self._waiting = set(range(len(self._workers)))
        for rank in range(len(self._workers)):
            if not self._ahead:
                self._worker(rank).permit()
            if rank in self._waiting and self._is_there(rank):
                self._take(rank)
