"""Link: the network of one node, whose bandwidth is shared by all that is on its way."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from streamplug_simulate.model.events import Events

UNEVEN = 0.25
"""Connections do not share a network evenly. If they did, files of one size that begin together would end
together, and the network would stand still until those that follow have begun."""

_GOLDEN = 0.6180339887498949


class Link:
    """Carries files to a node.

    Each file on its way has a share of the bandwidth. For a unit of share, all of them have received the same
    number of bytes since the later of two began: so a single counter of these, the level, says when each is
    complete.
    """

    def __init__(
        self, events: Events, bandwidth: float, latency: float, uneven: float = UNEVEN
    ) -> None:
        """Carry files.

        Args:
            events: The clock.
            bandwidth: Bytes per second of all.
            latency: Seconds from a request to its first byte.
            uneven: By how much the share of a file is less or more than that of others, at most.
        """
        self._events, self._bandwidth, self._latency = events, bandwidth, latency
        self._uneven, self._shares = uneven, 0.0
        self._level = self._since = 0.0
        self._due: list[tuple[float, int, float, Callable[[], None]]] = []
        self._number = count()
        self._plans = 0

    def fetch(self, size: int, requests: int, done: Callable[[], None]) -> None:
        """Fetch a file by so many requests, one after the other, and call `done` when it is there."""
        begin = self._events.now + requests * self._latency
        self._events.at(begin, lambda: self._begin(size, done))

    def _begin(self, size: int, done: Callable[[], None]) -> None:
        self._advance()
        number = next(self._number)
        # The golden ratio spreads them well, and the same in each simulation.
        share = 1 + self._uneven * (2 * (number * _GOLDEN % 1) - 1)
        self._shares += share
        heappush(self._due, (self._level + size / share, number, share, done))
        self._expect()

    def _advance(self) -> None:
        now = self._events.now
        if self._due:
            self._level += (now - self._since) * self._bandwidth / self._shares
        self._since = now

    def _expect(self) -> None:
        """Look when the next file will be complete, if nothing else begins before."""
        self._plans += 1
        if self._due:
            plan, left = self._plans, max(self._due[0][0] - self._level, 0)
            time = self._events.now + left * self._shares / self._bandwidth
            self._events.at(time, lambda: self._complete(plan))

    def _complete(self, plan: int) -> None:
        if plan != self._plans:  # something else has begun or ended since
            return
        self._advance()
        level, _, share, done = heappop(self._due)
        self._level = max(self._level, level)  # rounding
        self._shares = self._shares - share if self._due else 0.0
        self._expect()
        done()
