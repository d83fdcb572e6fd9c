"""How long a storage that is away is waited for, and what is said about it; all by a clock of the test."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamplug.errors import CorruptShardError, NotFound, ObjectReplaced, Transient
from streamplug.plugin_kit import Cancelled
from streamplug.transfer import outage, retry
from streamplug.transfer.outage import Patience, show_seconds
from streamplug.transfer.retry import call_with_retries

PLACE = "http://host"
SHARD = "http://host/set/shard.00001.mds: the server answered 503"


class Clock:
    """Time passes only in pauses between attempts."""

    def __init__(self, monkeypatch):
        self.now, self.pauses = 1000.0, []
        fake = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(outage, "time", fake)
        monkeypatch.setattr(retry, "time", fake)
        monkeypatch.setattr(retry, "sleep", self.sleep)
        monkeypatch.setattr(outage, "_outages", {})

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class Storage:
    """Fails until a time, with errors that `make` returns."""

    def __init__(self, clock, away, make=lambda: Transient(SHARD)):
        self.clock, self.until, self.make, self.calls = clock, clock.now + away, make, 0

    def read(self):
        self.calls += 1
        if self.clock.now < self.until:
            raise self.make()
        return "data"


def call(storage, seconds=600.0, retries=2, first=None):
    return call_with_retries(storage.read, retries, first, patience=Patience(PLACE, seconds))


def test_a_storage_that_is_away_for_minutes_is_waited_for(clock, caplog):
    with caplog.at_level(logging.WARNING):
        assert call(Storage(clock, away=185)) == "data"
    assert 185 <= clock.now - 1000 <= 185 + 30.5
    assert max(clock.pauses) <= 30.5
    *said, over = caplog.messages
    assert re.fullmatch(r"http://host answers again, after 3 min \d+ s", over)
    retried, away = said[:2], said[2:]
    assert all("; attempt " in text for text in retried)
    assert 2 <= len(away) <= 4
    text = (
        r"http://host has been away for (\d min )?\d+ s, and is waited for up to \d min \d+ s more "
        rf"\(download_patience=\): {re.escape(SHARD)}"
    )
    assert all(re.fullmatch(text, message) for message in away), away


def test_there_is_one_warning_a_minute_whoever_waits(clock, caplog):
    known = outage.outage_of(PLACE)
    for _ in range(40):
        clock.now += 10
        since = known.fail(600)
        known.warn(since, since + 600, Transient(SHARD))
    known.end()
    known.end()
    assert len(caplog.messages) == 7 + 1


def test_short_failures_are_no_outage(clock, caplog):
    assert call(Storage(clock, away=0.1)) == "data"
    assert len(caplog.messages) == 1
    assert "; attempt 2 follows in" in caplog.text


def test_the_last_attempt_is_when_the_patience_ends(clock):
    storage = Storage(clock, away=1e6)
    with pytest.raises(Transient) as caught:
        call(storage)
    assert clock.now == 1600
    ends = rf"; gave up after {storage.calls} attempts; http://host has been away for 10 min 0 s; "
    assert re.fullmatch(
        f"{re.escape(SHARD)}{ends}raise download_patience= for more", str(caught.value)
    )


@given(st.floats(0, 2000), st.floats(1, 1000), st.integers(0, 3))
def test_an_outage_that_is_shorter_than_the_patience_is_survived(away, seconds, retries):
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        storage = Storage(clock, away)
        if away <= seconds:
            assert call(storage, seconds, retries) == "data"
        elif away > seconds + sum(
            retry._min_backoff_seconds(n) + 0.5 for n in range(1, retries + 1)
        ):
            with pytest.raises(Transient):
                call(storage, seconds, retries)
            assert storage.calls > retries


def test_without_patience_there_are_as_many_attempts_as_retries(clock):
    storage = Storage(clock, away=1e6)
    with pytest.raises(
        Transient, match=r"gave up after 3 attempts; raise download_retry= for more"
    ):
        call(storage, seconds=0.0)
    assert storage.calls == 3


@pytest.mark.parametrize("kind", [CorruptShardError, ObjectReplaced])
def test_errors_that_may_last_are_not_waited_out(clock, kind):
    storage = Storage(clock, 1e6, lambda: kind("damaged"))
    with pytest.raises(kind, match=r"^damaged; gave up after 3 attempts; raise download_retry="):
        call(storage)
    assert clock.now < 1005


def test_a_missing_object_is_an_error_at_once(clock):
    with pytest.raises(NotFound):
        call(Storage(clock, 1e6, lambda: NotFound("missing")))
    assert clock.pauses == []


def test_attempts_during_an_outage_do_not_count_as_retries_after_it(clock):
    errors = [Transient(SHARD)] * 9 + [CorruptShardError("damaged")] * 2

    def read():
        if errors:
            raise errors.pop(0)
        return "data"

    assert call(SimpleNamespace(read=read)) == "data"


def test_the_server_is_asked_no_sooner_than_it_says(clock):
    def busy():
        error = Transient(SHARD)
        error.retry_after = 45.0
        return error

    assert call(Storage(clock, 200, busy)) == "data"
    assert min(clock.pauses) == 45.0


def test_readers_of_one_storage_wait_for_one_outage(clock):
    with pytest.raises(Transient):
        call(Storage(clock, away=1e6))
    began = clock.now
    late = Storage(clock, away=1e6)  # the other shards of the storage
    with pytest.raises(
        Transient, match=r"gave up after 3 attempts; http://host has been away for 10 min"
    ):
        call(late)
    assert (late.calls, clock.now - began < 5) == (3, True)
    assert call(Storage(clock, away=0)) == "data"  # the outage is over
    assert call(Storage(clock, away=500)) == "data"


def test_one_object_that_always_fails_is_given_up_though_others_arrive(clock):
    known = Storage(clock, away=1e6)

    def sleep(seconds):
        Clock.sleep(clock, seconds)
        call_with_retries(lambda: "another", 0, patience=Patience(PLACE, 600))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retry, "sleep", sleep)
        with pytest.raises(Transient):
            call(known)
    assert clock.now == 1600


def test_an_outage_that_nobody_saw_for_long_begins_anew(clock):
    with pytest.raises(Transient):
        call(Storage(clock, away=1e6))
    clock.now += 601
    assert call(Storage(clock, away=500)) == "data"


def test_another_storage_has_its_own_outage(clock):
    with pytest.raises(Transient):
        call(Storage(clock, away=1e6))
    other = Storage(clock, away=500)
    assert call_with_retries(other.read, 0, patience=Patience("http://other", 600)) == "data"


@pytest.mark.parametrize("end", [KeyboardInterrupt, Cancelled])
def test_whatever_ends_a_wait_is_not_tried_again(clock, monkeypatch, end):
    def sleep(seconds):
        raise end

    monkeypatch.setattr(retry, "sleep", sleep)
    storage = Storage(clock, away=1e6)
    with pytest.raises(end):
        call(storage)
    assert storage.calls == 1


def test_places_have_no_credentials_and_are_servers_or_buckets():
    assert Patience.of("s3://bucket/a/b", 1.0) == Patience("s3://bucket", 1.0)
    assert Patience.of("http://host:80/a?b=1", 1.0).place == "http://host:80"
    assert Patience.of("/mnt/far/set", 1.0).place == "/mnt/far/set"


def test_times_are_shown_in_minutes_and_seconds():
    assert [show_seconds(s) for s in (0.2, 59.4, 59.6, 605)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "10 min 5 s",
    ]
