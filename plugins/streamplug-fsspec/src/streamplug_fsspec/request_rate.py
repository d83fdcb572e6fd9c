"""Rate of requests that a server takes, found from the requests that it refuses.

The rate begins low, and doubles until the server refuses requests (slow start). Then it is cut by a fifth,
and grows along a cubic: slowly near the rate of the refusal, faster beyond it. That is CUBIC (RFC 9438) with
a rate in place of a window, as in the adaptive mode of the retries of the AWS SDKs (botocore,
``retries/throttling.py``). Requests are spaced by the generic cell rate algorithm (ITU-T I.371). Concurrency
follows: as many requests are in flight as the rate times the latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

MAX_REFUSED_SHARE = 0.05
"""Services also refuse some requests without being overloaded."""

_MIN_RATE, _MAX_RATE = 1.0, 1e5  # no client reaches the latter, which ends a slow start
_START_RATE = 10.0
_DOUBLING_SECONDS = 0.25  # of the slow start
_MIN_SLOW_START_SECONDS = 1.0  # an earlier refusal may be that of a quota which was used up before
_CUT = 0.2
_CUBIC = 0.4  # the constant of RFC 9438
_TIMES_PAUSE = 40.0  # pauses that the server wants take some percent of the time
_MIN_CYCLE_SECONDS, _MAX_CYCLE_SECONDS = 4.0, 300.0
_FORGOTTEN_CYCLES = 4.0  # the rate is then six times that of the refusal
_SECONDS_BETWEEN_CUTS = 0.5  # a cut cannot change the answers to what was sent before it
_WINDOW_SECONDS = 1.0
_BURST_SECONDS = 0.25  # what is caught up after a late wake-up


@dataclass(slots=True)
class RequestRate:
    """The limit of the rate of requests to a server; it starts without one.

    Rates are requests per second, times are seconds of a monotonic clock.

    Attributes:
        floor: Rate at `cut_at`; 0 is no limit.
        generation: Number of cuts; each makes the times that were reserved before void.
        peak: Rate to which it grows in a `cycle`, at which the server refused.
        cycle: Seconds; 0 in a slow start.
        cut_at: Time from which on the rate grows.
        free_at: Time of the next request that may be reserved.
        paused_until: Time before which the server wants no requests.
        window_at: Begin of the window in which `sent` and `refused` are counted.
        sent: Requests of the window.
        refused: Refused requests of the window.
        taken_rate: Requests per second that the server did not refuse, in the window before.
        decided_at: Time of the latest cut, before the pause that the server wants.
        updated_at: Time of the latest change.
    """

    floor: float = 0.0
    generation: float = 0.0
    peak: float = 0.0
    cycle: float = 0.0
    cut_at: float = 0.0
    free_at: float = 0.0
    paused_until: float = 0.0
    window_at: float = 0.0
    sent: float = 0.0
    refused: float = 0.0
    taken_rate: float = 0.0
    decided_at: float = 0.0
    updated_at: float = 0.0

    def at(self, now: float) -> float:
        """Return the rate at a time; infinity if there is no limit."""
        if not self.floor:
            return math.inf
        grown = max(now - self.cut_at, 0.0)
        if self.cycle:
            cut = 1.0 - self.floor / self.peak
            cubed: float = (grown / self.cycle - 1.0) ** 3
            return self.peak * (1.0 + cut * cubed)
        doubled: float = 2.0 ** min(grown / _DOUBLING_SECONDS, 64.0)
        return min(self.floor * doubled, _MAX_RATE)

    def reserve(self, now: float, max_rate: float, deadline: float) -> float:
        """Return the time from which on a request may be sent, reserved unless it is after `deadline`."""
        self._forget(now)
        rate = min(self.at(now), max_rate)
        at = max(self.free_at, now - _BURST_SECONDS, self.paused_until)
        if at <= deadline:
            self._roll(now)
            self.sent += 1
            self.free_at = at + 1.0 / rate
        return at

    def refuse(self, now: float, pause: float, first_rate: float) -> None:
        """Note that the server refused a request for its rate.

        Args:
            now: The time.
            pause: Seconds for which the server wants no requests; 0 if it does not tell.
            first_rate: Rate of requests of this process, for a slow start.
        """
        self._roll(now)
        self.refused += 1
        if pause:
            self.paused_until = max(self.paused_until, now + pause)
        if not self.floor:
            self._cut(now, max(first_rate / 2, _START_RATE), 0.0, 0.0)
        elif now < self.decided_at + _SECONDS_BETWEEN_CUTS:
            self.cut_at = max(self.cut_at, self.paused_until)
        elif not self.cycle and now < self.cut_at + _MIN_SLOW_START_SECONDS:
            self._cut(now, max(self.floor / 2, _MIN_RATE), 0.0, 0.0)
        elif not self.cycle:
            self._cut_from(self.at(now), now, 0.0)
        elif pause or self.refused > max(1.0, MAX_REFUSED_SHARE * max(self.sent, self.at(now))):
            # A rate that is not made use of says nothing.
            rate = self.at(now)
            self._cut_from(max(min(rate, self._count_taken(now)), rate / 2), now, pause)

    def _cut_from(self, peak: float, now: float, pause: float) -> None:
        peak = max(peak, _MIN_RATE)
        cycle = max((peak * _CUT / _CUBIC) ** (1 / 3), _MIN_CYCLE_SECONDS)
        cycle = max(cycle, min(_TIMES_PAUSE * pause, _MAX_CYCLE_SECONDS))
        share = _CUT / 2 if pause else _CUT  # the pause is a cut as well
        self._cut(now, peak * (1.0 - share), peak, cycle)

    def _cut(self, now: float, floor: float, peak: float, cycle: float) -> None:
        self.floor, self.peak, self.cycle, self.decided_at = floor, peak, cycle, now
        self.cut_at = self.free_at = max(now, self.paused_until)
        self.generation += 1.0

    def _forget(self, now: float) -> None:
        """End a limit that has not been one for long."""
        grown = now - self.cut_at
        if (self.cycle and grown > _FORGOTTEN_CYCLES * self.cycle) or self.at(now) == _MAX_RATE:
            self.floor = 0.0

    def _roll(self, now: float) -> None:
        """Begin a new window if the latest one is over."""
        seconds = now - self.window_at
        if seconds >= _WINDOW_SECONDS:
            self.taken_rate = max(self.sent - self.refused, 0.0) / seconds
            self.window_at, self.sent, self.refused = now, 0.0, 0.0

    def _count_taken(self, now: float) -> float:
        """Return the rate of requests that the server takes; infinity if it is not known."""
        seconds = max(now - self.window_at, _WINDOW_SECONDS)
        taken = max(self.taken_rate, (self.sent - self.refused) / seconds)
        return taken if self.taken_rate else math.inf


FIELDS = tuple(field.name for field in fields(RequestRate))
