"""Network link of one node, shared by concurrent downloads."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from streamplug_simulate.model.events import EventQueue

BANDWIDTH_SPREAD = 0.25
"""Relative spread of the bandwidth of concurrent downloads. With equal shares, downloads of one size that
start together would end together, and the link would idle until the next ones have started."""

_GOLDEN_RATIO = 0.6180339887498949


class NetworkLink:
    """Link that concurrent downloads share.

    Each download has a share of the bandwidth. Per unit of share, all downloads receive bytes at the same
    rate, so a single counter of those bytes, the level, says when each is complete.
    """

    def __init__(
        self, events: EventQueue, bandwidth: float, latency: float, spread: float = BANDWIDTH_SPREAD
    ) -> None:
        """Create a link.

        Args:
            events: The event queue.
            bandwidth: Bytes per second of all downloads together.
            latency: Seconds from a request to its first byte.
            spread: Largest relative deviation of a download's share.
        """
        self._events, self._bandwidth, self._latency = events, bandwidth, latency
        self._spread, self._total_share = spread, 0.0
        self._level = self._since = 0.0
        self._pending: list[tuple[float, int, float, Callable[[], None]]] = []
        self._number = count()
        self._version = 0

    def download(self, size: int, requests: int, done: Callable[[], None]) -> None:
        """Download `size` bytes by sequential requests, and call `done` when complete."""
        begin = self._events.now + requests * self._latency
        self._events.schedule(begin, lambda: self._begin(size, done))

    def _begin(self, size: int, done: Callable[[], None]) -> None:
        self._advance()
        number = next(self._number)
        # Multiples of the golden ratio are spread evenly, and deterministically.
        share = 1 + self._spread * (2 * (number * _GOLDEN_RATIO % 1) - 1)
        self._total_share += share
        heappush(self._pending, (self._level + size / share, number, share, done))
        self._schedule_completion()

    def _advance(self) -> None:
        now = self._events.now
        if self._pending:
            self._level += (now - self._since) * self._bandwidth / self._total_share
        self._since = now

    def _schedule_completion(self) -> None:
        """Schedule the completion of the next download, unless another starts before."""
        self._version += 1
        if self._pending:
            plan, left = self._version, max(self._pending[0][0] - self._level, 0)
            time = self._events.now + left * self._total_share / self._bandwidth
            self._events.schedule(time, lambda: self._complete(plan))

    def _complete(self, plan: int) -> None:
        if plan != self._version:  # a download has started or ended since
            return
        self._advance()
        level, _, share, done = heappop(self._pending)
        self._level = max(self._level, level)  # rounding
        self._total_share = self._total_share - share if self._pending else 0.0
        self._schedule_completion()
        done()
