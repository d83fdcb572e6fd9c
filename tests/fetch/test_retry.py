from __future__ import annotations

import logging

import pytest
from tenacity import wait_none

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.fetch.retry import retrying


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    asked: list[dict[str, float]] = []

    def wait(**settings: float) -> wait_none:
        asked.append(settings)
        return wait_none()

    monkeypatch.setattr("streamplug.fetch.retry.wait_exponential_jitter", wait)
    return asked


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
def test_a_passing_failure_is_tried_again(times):
    operation = Failing(times, Transient("busy"))
    assert retrying(operation, 3) == "done"
    assert operation.calls == times + 1


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_after_the_last_retry_the_error_itself_is_raised(retries):
    operation = Failing(100, Transient("s3://bucket/key: busy"))
    with pytest.raises(Transient, match=r"^s3://bucket/key: busy$"):
        retrying(operation, retries)
    assert operation.calls == retries + 1


@pytest.mark.parametrize("error", [NotFound("x"), AccessDenied("x"), StorageError("x"), KeyError()])
def test_other_errors_are_not_tried_again(error):
    operation = Failing(1, error)
    with pytest.raises(type(error)):
        retrying(operation, 5)
    assert operation.calls == 1


def test_waits_grow_and_are_bounded(waits):
    retrying(Failing(1, Transient("busy")), 1)
    assert waits == [{"initial": 0.5, "max": 30.0, "jitter": 0.5}]


def test_each_retry_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "streamplug.fetch"):
        retrying(Failing(2, Transient("s3://bucket/key: busy")), 5)
    assert len(caplog.records) == 2
    assert "s3://bucket/key: busy" in caplog.text
