"""Second requests for small parts whose first one is late; the first answer wins.

One stalled connection in a hundred makes nearly every second step of 64 ranges wait for it. A request is late
after twice the time that 95 % of the latest ones took, and is then sent again, twice at most. What is sent
again takes 2 % of the bytes at most, so that a server that is slow as a whole is not asked for more. This is
the "tied requests with a delay" of Dean and Barroso, The Tail at Scale, 2013.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from streamplug.errors import ConfigError

MAX_PART_BYTES = 1 << 20
"""Larger parts are not requested twice: their time is that of the transfer."""

_MAX_EXTRA_SHARE = 0.02
_FIRST_BYTES = 1 << 18  # what may be sent again besides, for the first steps of a run
_MAX_SAVED_BYTES = 4 << 20  # what may be sent again at once, after a long time without any
_MAX_ATTEMPTS = 3
_NUM_DURATIONS, _MIN_DURATIONS = 256, 32
_QUANTILE, _TIMES_QUANTILE = 0.95, 2.0
_MIN_LATE_SECONDS = 0.05  # less is noise of the machine

Maker = Callable[[], Awaitable[Any]]


class Hedges:
    """The requests of a storage: how long they take, and how many may be sent again.

    Used by one event loop at a time. It pickles.

    Attributes:
        num_sent: Number of requests that were sent again.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._durations: deque[float] = deque(maxlen=_NUM_DURATIONS)
        self._saved_bytes = float(_FIRST_BYTES)
        self.num_sent = 0

    def late_seconds(self) -> float | None:
        """Return the seconds after which a request is late; None while too few are known."""
        if not self._enabled or len(self._durations) < _MIN_DURATIONS:
            return None
        ordered = sorted(self._durations)
        quantile = ordered[int(_QUANTILE * len(ordered))]
        return max(_TIMES_QUANTILE * quantile, _MIN_LATE_SECONDS)

    async def gather(
        self, makers: Sequence[Maker], sizes: Sequence[int], *, is_limited: bool = False
    ) -> list[Any]:
        """Await several requests concurrently; return their results or exceptions.

        Args:
            makers: Each sends a request when it is called.
            sizes: Number of bytes that each asks for.
            is_limited: Whether requests wait for their turn, which makes none late.
        """
        self._saved_bytes += _MAX_EXTRA_SHARE * sum(sizes)
        self._saved_bytes = min(self._saved_bytes, _MAX_SAVED_BYTES)
        group = _Group(makers, sizes)
        try:
            return await self._gather(group, is_limited=is_limited)
        finally:
            group.cancel()

    async def _gather(self, group: _Group, *, is_limited: bool) -> list[Any]:
        loop, late, num_waits = asyncio.get_running_loop(), self.late_seconds(), 0
        late = None if is_limited else late
        begun = loop.time()
        end = None if late is None else begun + late
        for number in range(len(group.results)):
            group.send(number)
        while group.waiting:
            left = None if end is None else max(end - loop.time(), 0.0)
            # Until the first is late nothing has to be done for each answer.
            when = asyncio.FIRST_COMPLETED if num_waits else asyncio.ALL_COMPLETED
            done, _ = await asyncio.wait(group.waiting, timeout=left, return_when=when)
            for task in done:
                ended = group.take(task)
                if ended is not None and not is_limited:
                    self._durations.append(ended - begun)
            if late is not None and end is not None and loop.time() >= end:
                self._send_again(group)
                num_waits += 1
                end = loop.time() + late if num_waits < _MAX_ATTEMPTS - 1 else None
        return group.results

    def _send_again(self, group: _Group) -> None:
        for number in group.open_numbers():
            size = group.sizes[number]
            if size <= min(MAX_PART_BYTES, self._saved_bytes):
                self._saved_bytes -= size
                self.num_sent += 1
                group.send(number)


def make_hedges(url: str, hedge: Any, *, can_cancel: bool) -> Hedges:
    """Return the hedges of a storage.

    Args:
        url: Its URL, for errors.
        hedge: Whether requests that are late are sent again; None where the client can cancel them.
        can_cancel: Whether it can.

    Raises:
        ConfigError: If `hedge` is no such value, or the client cannot.
    """
    if not (hedge is None or isinstance(hedge, bool)):
        raise ConfigError(
            f"{url}: the option 'hedge' must be true or false, not {type(hedge).__name__}"
        )
    if hedge and not can_cancel:
        raise ConfigError(
            f"{url}: hedge=True: its client cannot cancel a request, so none is sent again; leave it out"
        )
    return Hedges(enabled=can_cancel if hedge is None else hedge)


class _Group:
    """Requests that are awaited together, and the attempts at each."""

    def __init__(self, makers: Sequence[Maker], sizes: Sequence[int]) -> None:
        self.makers, self.sizes = makers, sizes
        self.results: list[Any] = [None] * len(makers)
        self.waiting: set[asyncio.Future[Any]] = set()
        self._numbers: dict[asyncio.Future[Any], int] = {}
        self._attempts: list[list[asyncio.Future[Any]]] = [[] for _ in makers]

    def send(self, number: int) -> None:
        task = asyncio.ensure_future(_timed(self.makers[number]))
        task.add_done_callback(_take_error)
        self._numbers[task] = number
        self._attempts[number].append(task)
        self.waiting.add(task)

    def take(self, task: asyncio.Future[Any]) -> float | None:
        """Take an answer for the result, unless an attempt that may succeed is left.

        Returns:
            The loop's time at its end; None of one that is not the result, or failed.
        """
        self.waiting.discard(task)
        number = self._numbers[task]
        attempts = self._attempts[number]
        if task not in attempts:  # another one was first
            return None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        attempts.remove(task)
        if error is not None and attempts:
            return None
        self.results[number], ended = task.result() if error is None else (error, None)
        for other in attempts:
            other.cancel()
            self.waiting.discard(other)
        attempts.clear()
        return ended

    def open_numbers(self) -> list[int]:
        """Return the numbers of the requests without an answer."""
        return [number for number, attempts in enumerate(self._attempts) if attempts]

    def cancel(self) -> None:
        """Cancel what is not done."""
        for task in self.waiting:
            task.cancel()


async def _timed(maker: Maker) -> tuple[Any, float]:
    """Await a request; return its result and the loop's time at its end."""
    result = await maker()
    return result, asyncio.get_running_loop().time()


def _take_error(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()  # else asyncio logs that of an attempt that is not waited for
