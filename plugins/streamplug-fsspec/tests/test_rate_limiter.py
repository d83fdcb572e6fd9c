"""Requests wait for their turn where a server refuses some."""

from __future__ import annotations

import asyncio
import pickle
import time

import pytest
from streamplug_fsspec import FsspecStorage, HttpStorage, shared_rates
from streamplug_fsspec.rate_limiter import MAX_WAIT_SECONDS, RateLimiter
from streamplug_testing.answers import check_limit, recording

from streamplug.errors import ConfigError, Transient


@pytest.fixture(autouse=True)
def rates(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(shared_rates, "_opened", [])
    monkeypatch.setattr(RateLimiter, "num_tolerated", 0)  # one begins a limit


def test_nothing_waits_where_a_server_refuses_nothing():
    limiter = RateLimiter("http://a.example")
    for status in (200, 206, 404, 500, 503, None):
        limiter.acquire_in_thread()
        limiter.note(status)
    assert not limiter.is_limiting


@pytest.mark.parametrize(
    ("status", "headers", "code"),
    [
        (429, {}, ""),
        (509, {}, ""),
        (503, {"retry-after": "1"}, ""),
        (503, {}, "SlowDown"),
        (400, {}, "Throttling"),
        (None, None, "RequestLimitExceeded"),
    ],
)
def test_refusals_limit_the_place_and_no_other(status, headers, code):
    limiter = RateLimiter("http://a.example")
    limiter.note(status, headers, code)
    assert RateLimiter("http://a.example").is_limiting
    assert not RateLimiter("http://b.example").is_limiting


@pytest.mark.parametrize(("requests", "most"), [(0, 5), (20, 5), (100, 20)])
def test_rare_refusals_limit_nothing(monkeypatch, requests, most):
    monkeypatch.setattr(RateLimiter, "num_tolerated", 5)
    limiter = RateLimiter("http://a.example")
    for _ in range(requests):
        limiter.acquire_in_thread()
    for _ in range(most):
        limiter.note(429, {"retry-after": "1"})
    assert not limiter.is_limiting
    limiter.note(429, {"retry-after": "1"})
    assert limiter.is_limiting


def test_all_wait_as_long_as_the_server_wants():
    RateLimiter("http://a.example").note(429, {"retry-after": "1"})
    begun = time.monotonic()
    RateLimiter("http://a.example").acquire_in_thread()
    assert time.monotonic() - begun >= 0.9


def test_a_long_wait_is_left_to_retries():
    RateLimiter("http://a.example").note(429, {"retry-after": "50"})
    begun = time.monotonic()
    with pytest.raises(
        Transient, match=r"^http://a.example: the server wants fewer requests"
    ) as caught:
        RateLimiter("http://a.example").acquire_in_thread()
    assert time.monotonic() - begun < MAX_WAIT_SECONDS
    assert 40 < caught.value.retry_after <= 50


def test_times_that_were_reserved_before_a_cut_are_void():
    limiter = RateLimiter("http://a.example", max_rate=1.0)

    async def main():
        await limiter.acquire()  # the next one is a second later
        task = asyncio.ensure_future(limiter.acquire())
        await asyncio.sleep(0.1)
        limiter.note(429, {"retry-after": "2"})
        begun = time.monotonic()
        await task
        return time.monotonic() - begun

    assert asyncio.run(main()) >= 1.9


def test_it_can_be_turned_off_and_pickles():
    RateLimiter("http://a.example").note(429, {"retry-after": "50"})
    limiter = pickle.loads(pickle.dumps(RateLimiter("http://a.example", enabled=False)))
    limiter.acquire_in_thread()
    assert not limiter.is_limiting
    assert pickle.loads(pickle.dumps(RateLimiter("http://a.example"))).is_limiting


def test_requests_wait_where_the_server_refuses_some():
    with recording() as server:
        check_limit(HttpStorage(server.url), server, (429, b""))


def test_storages_of_one_server_slow_down_together():
    with recording() as server:
        server.answers, server.headers = [(429, b"")], {"Retry-After": "30"}
        one, other = HttpStorage(f"{server.url}/one"), HttpStorage(f"{server.url}/other")
        with pytest.raises(Transient, match="429"):
            one.read("k")
        with pytest.raises(Transient, match="/other/k: the server wants fewer requests") as caught:
            other.read("k")
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.retry_after) == (str(caught.value), caught.value.retry_after)
        assert len(server.requests) == 1
        server.answers = [(200, b"data")]
        assert HttpStorage(f"{server.url}/one", rate_limit=False).read("k") == b"data"


def test_late_requests_are_not_sent_again_while_they_wait():
    with recording() as server:
        storage = HttpStorage(server.url)
        storage.rate_limiter.note(429)
        assert storage.rate_limiter.is_limiting
        storage._hedges.late_seconds = lambda: 0.0
        server.answers, server.wait = [(206, b"data")], 0.2
        server.headers = {"Content-Range": "bytes 0-3/4"}
        assert storage.read_ranges("k", [(0, 4)]) == [b"data"]
        assert len(server.requests) == 1


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "10", [1]])
def test_bad_values_are_refused_by_name(value):
    with pytest.raises(ConfigError, match="rate_limit"):
        HttpStorage("http://a.example/set", rate_limit=value)


def test_a_client_whose_requests_are_not_seen_takes_no_limit():
    for value in (True, 5):
        with pytest.raises(ConfigError, match=r"rate_limit.* does not tell of single requests"):
            FsspecStorage("ftp://a.example/set", rate_limit=value)
    FsspecStorage("ftp://a.example/set", rate_limit=False)
