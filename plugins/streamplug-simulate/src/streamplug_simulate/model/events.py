"""Event queue with a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count


class EventQueue:
    """Calls ordered by simulated time.

    Attributes:
        now: Seconds since the run began.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()  # calls due at the same time run in the order of scheduling

    def schedule(self, time: float, call: Callable[[], None]) -> None:
        """Schedule a call at a time, or now if that has passed."""
        heappush(self._queue, (max(time, self.now), next(self._number), call))

    def run_next(self) -> bool:
        """Run the next call; return whether there was one."""
        if not self._queue:
            return False
        self.now, _, call = heappop(self._queue)
        call()
        return True
