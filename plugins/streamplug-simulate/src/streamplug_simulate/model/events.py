"""Events: a clock that jumps from one thing that happens to the next."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class Events:
    """What will happen, by the second.

    Attributes:
        now: Seconds since the run began.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()  # what is due at the same time happens in the order of asking

    def at(self, time: float, call: Callable[[], None]) -> None:
        """Call something at a time, or now if that has passed."""
        heappush(self._queue, (max(time, self.now), next(self._number), call))

    def happen(self) -> bool:
        """Let the next thing happen; returns whether there was one."""
        if not self._queue:
            return False
        self.now, _, call = heappop(self._queue)
        call()
        return True
