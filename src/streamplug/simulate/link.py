"""Link: the network of one node, whose bandwidth is shared evenly by all that is on its way."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from streamplug.simulate.events import Events


class Link:
    """Carries files to a node.

    All files on their way have received the same number of bytes since the later of two began: so a single
    counter of these, the level, says when each is complete.
    """

    def __init__(self, events: Events, bandwidth: float, latency: float) -> None:
        """Carry so many bytes per second; the first of each request comes `latency` seconds later."""
        self._events, self._bandwidth, self._latency = events, bandwidth, latency
        self._level = self._since = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._plans = 0

    def fetch(self, size: int, requests: int, done: Callable[[], None]) -> None:
        """Fetch a file by so many requests, one after the other, and call `done` when it is there."""
        begin = self._events.now + requests * self._latency
        self._events.at(begin, lambda: self._begin(size, done))

    def _begin(self, size: int, done: Callable[[], None]) -> None:
        self._advance()
        heappush(self._due, (self._level + size, next(self._number), done))
        self._expect()

    def _advance(self) -> None:
        now = self._events.now
        if self._due:
            self._level += (now - self._since) * self._bandwidth / len(self._due)
        self._since = now

    def _expect(self) -> None:
        """Look when the next file will be complete, if nothing else begins before."""
        self._plans += 1
        if self._due:
            plan, left = self._plans, max(self._due[0][0] - self._level, 0)
            time = self._events.now + left * len(self._due) / self._bandwidth
            self._events.at(time, lambda: self._complete(plan))

    def _complete(self, plan: int) -> None:
        if plan != self._plans:  # something else has begun or ended since
            return
        self._advance()
        level, _, done = heappop(self._due)
        self._level = max(self._level, level)  # rounding
        self._expect()
        done()
