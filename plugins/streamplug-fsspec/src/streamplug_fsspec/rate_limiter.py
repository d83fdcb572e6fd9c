"""Limits of requests, which all processes of a machine keep together where a server refuses requests.

Clients pass each request through the limiter of its place: they acquire it before they send, and tell it the
status of the answer. As long as a server refuses hardly any, nothing waits. `request_rate` has the algorithm.
A client may be that of several places: `limiting` says whose requests those of a thread and its tasks are.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from streamplug.errors import ConfigError, Transient
from streamplug_fsspec.error_mapping import retry_after_in
from streamplug_fsspec.event_loop import run_on_loop
from streamplug_fsspec.request_rate import RequestRate
from streamplug_fsspec.service_errors import THROTTLING_CODES
from streamplug_fsspec.shared_rates import hash_place, shared_rates

_LOG = logging.getLogger("streamplug.transfer")

_THROTTLING_STATUSES = frozenset((429, 509))
MAX_WAIT_SECONDS = 10.0
"""Longer waits are left to retries: a stall timeout does not count them."""

_MAX_TOLERATED_SHARE = 0.2
"""Share of refused requests up to which these alone wait."""

_MAX_PAUSE_SECONDS = 60.0  # as long as retries wait at most
_WINDOW_SECONDS = 1.0


class NoTurnError(Transient):
    """A request would have waited too long for its turn."""

    def __init__(self, place: str, retry_after: float) -> None:
        super().__init__(
            f"{place}: the server wants fewer requests, and this one had no turn in {MAX_WAIT_SECONDS:g} s; "
            "it may be tried again"
        )
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return NoTurnError, (str(self).partition(": the server wants")[0], self.retry_after)


class RateLimiter:
    """The limit of the requests of this machine to a place. It pickles.

    Args:
        place: Server or bucket, without credentials.
        max_rate: Requests per second that are sent at most.
        enabled: Whether there is a limit at all.

    Attributes:
        num_tolerated: Number of refused requests of this process in a second that begin no limit.
    """

    num_tolerated = 5

    def __init__(self, place: str, max_rate: float = math.inf, *, enabled: bool = True) -> None:
        self.place, self._max_rate, self._enabled = place, max_rate, enabled
        self._hash = hash_place(place)
        # Requests of this process: all, and those before the window in which refused ones are counted.
        self._sent, self._sent_before, self._refused = 0, 0, 0
        self._window_at, self._rate_before = time.monotonic(), 0.0
        self._turns: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RateLimiter, enabled=self._enabled), (self.place, self._max_rate)

    @property
    def is_limiting(self) -> bool:
        """Whether requests wait for each other."""
        return self._enabled and shared_rates().is_limited(self._hash)

    async def acquire(self) -> None:
        """Wait until a request may be sent.

        Raises:
            NoTurnError: If that takes more than ten seconds.
        """
        if self._may_send():
            return
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        # In turns, so that a process has one time reserved, and processes with many requests get no more.
        async with self._turn():
            while True:
                at, generation = self._reserve(deadline)
                if (seconds := at - time.monotonic()) > 0:
                    await asyncio.sleep(seconds)
                if shared_rates().read(self._hash).generation == generation:
                    return

    def acquire_in_thread(self) -> None:
        """Wait until a request may be sent, as `acquire`; `Cancelled` is raised if the consumer stops."""
        if not self._may_send():
            from fsspec.asyn import get_loop

            run_on_loop(get_loop(), self.acquire)

    def note(self, status: int | None, headers: Any = None, code: str = "") -> None:
        """Take note of the status of an answer, its headers and the error code of the service."""
        if not self._enabled or (status is not None and status < 400):
            return
        pause = min(retry_after_in(headers), _MAX_PAUSE_SECONDS)
        # Without more, 503 is an outage, to which the rate does not matter.
        is_pause = status == 503 and pause > 0
        if not (status in _THROTTLING_STATUSES or code in THROTTLING_CODES or is_pause):
            return
        rate = self._count_refusal()
        is_rare = self._refused <= max(
            self.num_tolerated, _MAX_TOLERATED_SHARE * rate * _WINDOW_SECONDS
        )
        if is_rare and not self.is_limiting:
            return
        rates = shared_rates()
        if not rates.is_limited(self._hash):
            _LOG.info(
                "%s answers %s: all processes of this machine send it fewer requests",
                self.place,
                code or status,
            )
        rates.change(self._hash, lambda limit, now: limit.refuse(now, pause, rate))

    def _may_send(self) -> bool:
        """Return whether a request may be sent at once, and count it."""
        if not self._enabled:
            return True
        self._sent += 1
        return self._max_rate == math.inf and not shared_rates().is_limited(self._hash)

    def _count_refusal(self) -> float:
        """Count a refused request; return about how many requests a second this process sends."""
        seconds = time.monotonic() - self._window_at
        if seconds >= _WINDOW_SECONDS:
            self._rate_before = (self._sent - self._sent_before) / seconds
            self._window_at += seconds
            self._sent_before, self._refused = self._sent, 0
        self._refused += 1
        return max(self._rate_before, (self._sent - self._sent_before) / _WINDOW_SECONDS)

    def _reserve(self, deadline: float) -> tuple[float, float]:
        """Return the time of the next request, and the generation of the limit.

        Raises:
            NoTurnError: If the time is after the deadline.
        """

        def reserve(rate: RequestRate, now: float) -> tuple[float, float]:
            return rate.reserve(now, self._max_rate, deadline), rate.generation

        at, generation = shared_rates().change(self._hash, reserve)
        if at > deadline:
            raise NoTurnError(self.place, max(at - time.monotonic(), 0.0))
        return at, generation

    def _turn(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        return self._turns.setdefault(loop, asyncio.Lock())


def check_rate_limit(url: str, rate_limit: Any, *, can_limit: bool) -> None:
    """Check the option `rate_limit` of a storage.

    Args:
        url: Its URL, for errors.
        rate_limit: See `make_rate_limiter`.
        can_limit: Whether the client's requests pass through the limiter.

    Raises:
        ConfigError: If it is no such value, or limits requests that do not.
    """
    given = f"{url}: the option rate_limit={rate_limit!r:.40}"
    is_number = isinstance(rate_limit, (int, float)) and not isinstance(rate_limit, bool)
    if not (rate_limit is None or isinstance(rate_limit, bool) or is_number):
        raise ConfigError(f"{given} must be requests per second, True or False")
    if is_number and not 0 < rate_limit < math.inf:
        raise ConfigError(f"{given} must be positive; write False for no limit")
    if rate_limit and not can_limit:
        raise ConfigError(
            f"{given}: its client does not tell of single requests, so none are limited; leave it out"
        )


def make_rate_limiter(
    place: str, rate_limit: float | bool | None, *, can_limit: bool
) -> RateLimiter:
    """Return the limiter of a storage.

    Args:
        place: Server or bucket, without credentials.
        rate_limit: Requests per second of this machine at most; None and True for what the server takes,
            False for no limit, even where it refuses requests.
        can_limit: Whether the client's requests pass through the limiter.
    """
    is_number = rate_limit is not None and not isinstance(rate_limit, bool)
    max_rate = float(rate_limit) if is_number and rate_limit else math.inf
    return RateLimiter(place, max_rate, enabled=can_limit and rate_limit is not False)


_current: ContextVar[RateLimiter | None] = ContextVar("limiter", default=None)


@contextmanager
def limiting(limiter: RateLimiter) -> Iterator[None]:
    """Have requests of the block pass through a limiter."""
    token = _current.set(limiter)
    try:
        yield
    finally:
        _current.reset(token)


async def acquire_request() -> None:
    """Wait until a request of this task may be sent; see `RateLimiter.acquire`."""
    if (limiter := _current.get()) is not None:
        await limiter.acquire()


def note_answer(status: int | None, headers: Any = None, code: str = "") -> None:
    """Take note of an answer to a request of this task or thread; see `RateLimiter.note`."""
    if (limiter := _current.get()) is not None:
        limiter.note(status, headers, code)


def trace_requests() -> Any:
    """Return a `TraceConfig` of aiohttp with which all requests of a session pass through limiters."""
    from aiohttp import TraceConfig

    async def start(*_: Any) -> None:
        await acquire_request()

    async def end(_session: Any, _context: Any, request: Any) -> None:
        note_answer(request.response.status, request.response.headers)

    trace = TraceConfig()
    trace.on_request_start.append(start)
    trace.on_request_end.append(end)
    return trace


def limit_session(session: Any) -> None:
    """Have all requests of a session of the package requests pass through limiters."""
    for adapter in session.adapters.values():
        adapter.send = _limited(adapter.send)


def _limited(send: Callable[..., Any]) -> Callable[..., Any]:
    def send_in_turn(*args: Any, **kwargs: Any) -> Any:
        if (limiter := _current.get()) is None:
            return send(*args, **kwargs)
        limiter.acquire_in_thread()
        response = send(*args, **kwargs)
        limiter.note(response.status_code, response.headers)
        return response

    return send_in_turn
