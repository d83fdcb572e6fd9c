"""Training loop that consumes the batches of all ranks step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamplug_simulate.model.events import EventQueue
from streamplug_simulate.model.worker import Worker


class TrainingLoop:
    """Steps of one epoch; each starts when all ranks have their batch.

    Attributes:
        step: Number of the current step.
        waits: Seconds of waiting before each step.
        ended: Whether the last step is over.
    """

    def __init__(
        self,
        events: EventQueue,
        workers: Callable[[TrainingLoop, int], Sequence[Worker]],
        ranks: int,
        *,
        steps: int,
        seconds: float,
        ahead: bool,
        enough: Callable[[], bool],
    ) -> None:
        """Start an epoch.

        Args:
            events: The event queue.
            workers: Starts the workers of a rank.
            ranks: Number of ranks.
            steps: Number of steps of the epoch.
            seconds: Seconds of a step.
            ahead: Whether workers continue during a step; else a batch is requested when the loop needs it.
            enough: Called after each step; True ends the epoch.
        """
        self._events, self._seconds, self._ahead, self._enough = events, seconds, ahead, enough
        self._steps = steps
        self._ready_steps: list[set[int]] = [set() for _ in range(ranks)]
        self._waiting = set(range(ranks))
        self._since = events.now
        self.step, self.waits, self.ended = 0, list[float](), False
        self._workers = [workers(self, rank) for rank in range(ranks)]

    def on_batch(self, rank: int, step: int) -> None:
        """Receive a batch of a rank; step -1 if one of its workers has ended."""
        if step >= 0:
            self._ready_steps[rank].add(step)
        if rank in self._waiting and self._is_ready(rank):
            self._take(rank)

    def _is_ready(self, rank: int) -> bool:
        # At an uneven end of an epoch, a rank without a batch does not block the others.
        return self.step in self._ready_steps[rank] or self._worker(rank).ended

    def _worker(self, rank: int) -> Worker:
        workers = self._workers[rank]
        return workers[self.step % len(workers)]

    def _take(self, rank: int) -> None:
        self._waiting.discard(rank)
        self._ready_steps[rank].discard(self.step)
        if self._ahead:
            self._worker(rank).request_batch()
        if not self._waiting:
            now = self._events.now
            self.waits.append(now - self._since)
            self._events.schedule(now + self._seconds, self._end_step)

    def _end_step(self) -> None:
        self.step += 1
        if self.step == self._steps or self._enough():
            self.ended = True
            return
        self._since = self._events.now
        self._waiting = set(range(len(self._workers)))
        for rank in range(len(self._workers)):
            if not self._ahead:
                self._worker(rank).request_batch()
            if rank in self._waiting and self._is_ready(rank):
                self._take(rank)
