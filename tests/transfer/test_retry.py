from __future__ import annotations

import logging

import pytest

from streamplug.errors import AccessDenied, HashMismatchError, NotFound, StorageError, Transient
from streamplug.transfer import retry
from streamplug.transfer.retry import call_with_retries

WAIT = retry.backoff_seconds


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(retry, "backoff_seconds", lambda _: 0.0)


class Failing:
    """An operation that fails so many times before it succeeds."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "done"


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", [Transient, HashMismatchError])
def test_a_passing_failure_is_tried_again(kind, times):
    operation = Failing(times, kind("busy"))
    assert call_with_retries(operation, 3) == "done"
    assert operation.calls == times + 1


@pytest.mark.parametrize(
    ("retries", "made"), [(0, "1 attempt"), (1, "2 attempts"), (4, "5 attempts")]
)
@pytest.mark.parametrize("kind", [Transient, HashMismatchError])
def test_after_the_last_retry_the_error_itself_is_raised(kind, retries, made):
    operation = Failing(100, kind("s3://bucket/key: busy"))
    with pytest.raises(kind) as caught:
        call_with_retries(operation, retries)
    assert caught.value is operation.error
    text = f"s3://bucket/key: busy; gave up after {made}; raise download_retry= for more"
    assert str(caught.value) == text
    assert operation.calls == retries + 1


def test_errors_name_only_options_that_exist():
    with pytest.raises(Transient, match=r"^busy; gave up after 3 attempts$"):
        call_with_retries(Failing(100, Transient("busy")))
    with pytest.raises(Transient, match=r"^busy; gave up after 1 attempt; raise retry= for more$"):
        call_with_retries(Failing(100, Transient("busy")), 0, option="retry")


@pytest.mark.parametrize("error", [NotFound("x"), AccessDenied("x"), StorageError("x"), KeyError()])
def test_other_errors_are_not_tried_again(error):
    operation = Failing(1, error)
    with pytest.raises(type(error)):
        call_with_retries(operation, 5)
    assert operation.calls == 1


def test_waits_grow_and_are_bounded():
    for attempt, least in [(1, 0.5), (2, 1), (3, 2), (4, 4), (7, 30), (5000, 30)]:
        assert least <= WAIT(attempt) <= least + 0.5


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 0.0), (7.0, 7.0), (1e6, 60.0)])
def test_waits_as_long_as_the_server_asks_for_within_reason(monkeypatch, asked, waited):
    waits = []
    monkeypatch.setattr(retry, "sleep", waits.append)
    error = Transient("busy")
    error.retry_after = asked
    assert call_with_retries(Failing(1, error), 1) == "done"
    assert waits == [waited]


def test_each_retry_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "streamplug.transfer"):
        call_with_retries(Failing(2, Transient("s3://bucket/key: busy")), 5)
    assert len(caplog.records) == 2
    assert "s3://bucket/key: busy" in caplog.text


def test_an_attempt_of_the_caller_counts():
    operation = Failing(1, Transient("busy"))
    assert call_with_retries(operation, 2, Transient("the first")) == "done"
    assert operation.calls == 2
    with pytest.raises(Transient, match="the only one; gave up after 1 attempt;"):
        call_with_retries(operation, 0, Transient("the only one"))
