"""The rate of requests follows what a server takes."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from streamplug_fsspec.request_rate import RequestRate

START, PROCESSES, LATENCY = 1000.0, 8, 0.005


class Bucket:
    """Takes requests for tokens, which fill it in a second; at a moment, their rate may change."""

    def __init__(self, rate, later=None, change_at=0.0):
        self.rate, self.tokens, self.at = rate, rate, START
        self.later, self.change_at = later, START + change_at

    def take(self, now):
        if self.later is not None and now > self.change_at:
            self.rate = self.later
        self.tokens = min(self.tokens + (now - self.at) * self.rate, self.rate)
        self.at = now
        self.tokens -= (taken := self.tokens >= 1)
        return taken


class Clock:
    """Takes a number of requests in each second."""

    def __init__(self, rate):
        self.rate, self.second, self.count = rate, 0, 0

    def take(self, now):
        if int(now) != self.second:
            self.second, self.count = int(now), 0
        self.count += (taken := self.count < self.rate)
        return taken


def run(server, pause=0.0, seconds=60.0, rate=None):
    """Have processes send all they may; return the times of requests that were taken and refused."""
    rate, draws = RequestRate() if rate is None else rate, random.Random(0)
    rate.refuse(START, 0.0, 300.0)
    events = [
        (START + draws.random() / 100, process, "reserve", 0.0) for process in range(PROCESSES)
    ]
    heapq.heapify(events)
    found = {True: [], False: []}
    while (event := heapq.heappop(events))[0] < START + seconds:
        now, process, what, generation = event
        if what == "refused":
            rate.refuse(now, pause, 300.0)
        elif what == "reserve" or generation != rate.generation:
            at = max(rate.reserve(now, math.inf, math.inf), now) + draws.expovariate(1000)
            heapq.heappush(events, (at, process, "send", rate.generation))
        else:
            taken = server.take(now)
            found[taken].append(now - START)
            heapq.heappush(events, (now + 0.0002, process, "reserve", 0.0))
            if not taken:
                heapq.heappush(events, (now + LATENCY, process, "refused", 0.0))
    return found[True], found[False]


def share(times, first, last):
    return sum(first <= at < last for at in times) / (last - first)


@pytest.mark.parametrize("server", [Bucket, Clock])
@pytest.mark.parametrize("limit", [50, 200])
def test_what_a_server_takes_is_used_with_few_refusals(server, limit):
    taken, refused = run(server(limit))
    assert share(taken, 10, 60) >= 0.9 * limit
    assert share(refused, 10, 60) <= 0.1 * limit


@pytest.mark.parametrize("server", [Bucket, Clock])
def test_pauses_that_a_server_wants_take_little_of_the_time(server):
    taken, refused = run(server(100), pause=1.0, seconds=100)
    assert share(taken, 30, 100) >= 0.9 * 100
    assert share(refused, 30, 100) <= 0.01 * 100


def test_a_lower_limit_is_followed_within_seconds():
    taken, refused = run(Bucket(400, 50, change_at=15), seconds=45)
    assert share(taken, 25, 45) >= 0.9 * 50
    assert share(refused, 25, 45) <= 0.1 * 50


def test_a_higher_limit_is_found():
    taken, _ = run(Bucket(50, 200, change_at=15), seconds=60)
    assert share(taken, 45, 60) >= 0.9 * 200


def test_the_limit_ends_some_time_after_the_last_refusal():
    rate = RequestRate()
    run(Bucket(200), seconds=20, rate=rate)
    now, reservations = START + 20, 0
    while rate.floor:
        now = max(rate.reserve(now, math.inf, math.inf), now)
        reservations += 1
    assert now < START + 60
    assert reservations > 200 * (now - START - 20)  # it grew meanwhile


def test_refusals_of_one_moment_are_one_reason():
    rate = RequestRate()
    for _ in range(64):
        rate.refuse(START, 0.0, 300.0)
    assert (rate.generation, rate.floor) == (1, 150)


def test_nobody_sends_before_a_pause_is_over_nor_all_at_once_then():
    rate = RequestRate()
    rate.refuse(START, 3.0, 300.0)
    rate.refuse(START + 0.1, 5.0, 300.0)
    first, second = (rate.reserve(START + 0.2, math.inf, math.inf) for _ in range(2))
    assert (first, second) == (START + 5.1, pytest.approx(START + 5.1 + 1 / 150))


def test_single_refusals_of_many_requests_cut_nothing():
    rate = RequestRate()
    run(Bucket(1000), seconds=15, rate=rate)
    now, before = START + 15.0, rate.generation
    for number in range(1000):
        now = max(now, rate.reserve(now, math.inf, math.inf))
        if number == 500:
            rate.refuse(now, 0.0, 300.0)
    assert rate.generation == before


def test_a_time_after_the_deadline_is_not_reserved():
    rate = RequestRate()
    rate.refuse(START, 5.0, 300.0)
    times = {rate.reserve(START, math.inf, START + 1.0) for _ in range(3)}
    assert times == {START + 5.0}


def test_a_highest_rate_is_kept_without_refusals():
    rate, now = RequestRate(), START
    for _ in range(100):
        now = max(now, rate.reserve(now, 20.0, math.inf))
    assert 100 / (now - START) == pytest.approx(20.0, rel=0.1)
    assert not rate.floor
