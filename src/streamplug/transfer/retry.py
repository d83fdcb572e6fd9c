"""Retries with exponential backoff."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from streamplug.errors import CorruptShardError, Transient, TruncatedIndexError
from streamplug.plugin_kit import sleep
from streamplug.transfer.observer import emit_retry
from streamplug.transfer.outage import NO_PATIENCE, Patience, outage_of, show_seconds

T = TypeVar("T")
_LOG = logging.getLogger("streamplug.transfer")
_DEFAULT_RETRIES = 2
_FIRST_WAIT_SECONDS = 0.5
_MAX_WAIT_SECONDS = 30.0
_MAX_JITTER_SECONDS = 0.5
_MAX_RETRY_AFTER_SECONDS = 60.0
# Data that differ from the index, and an index that is cut short, may have been damaged in transit.
RETRYABLE_ERRORS = (Transient, CorruptShardError, TruncatedIndexError)


def call_with_retries(
    operation: Callable[[], T],
    retries: int | None = None,
    first_error: Exception | None = None,
    *,
    option: str = "download_retry",
    patience: Patience = NO_PATIENCE,
) -> T:
    """Call `operation`, retrying `RETRYABLE_ERRORS` with exponential backoff.

    Waits grow from 0.5 to 30 seconds, with jitter, and are no shorter than the server asks for, up to a
    minute. The last error is raised, with the number of attempts.

    Args:
        operation: Called until it does not fail.
        retries: Maximum number of retries; None is two, which no option changes.
        first_error: Error of a first attempt that the caller has made.
        option: Name, for the error, of the argument that `retries` is of.
        patience: How long a storage that is away is waited for, beyond `retries`.
    """
    advice = "" if retries is None else f"; raise {option}= for more"
    retries = _DEFAULT_RETRIES if retries is None else retries
    outage = outage_of(patience.place)
    attempt = lasting = 0  # the latter are attempts with errors that may last
    began: float | None = None
    while True:
        attempt += 1
        try:
            if attempt == 1 and first_error is not None:
                raise first_error
            result = operation()
        except RETRYABLE_ERRORS as error:
            retry_after = error.retry_after if isinstance(error, Transient) else 0.0
            seconds, least = backoff_seconds(attempt), min(retry_after, _MAX_RETRY_AFTER_SECONDS)
            if patience.covers(error):
                now = time.monotonic()
                began = now if began is None else began
                since = min(began, outage.fail(patience.seconds))
                left = since + patience.seconds - now
                if attempt > retries and left <= 0:
                    away = f"{patience.place} has been away for {show_seconds(now - since)}"
                    _give_up(error, attempt, f"; {away}; raise download_patience= for more")
                    raise
                if attempt > retries:
                    outage.warn(since, since + patience.seconds, error)
                    seconds = min(seconds, left)
            else:
                lasting += 1
                if lasting > retries:
                    _give_up(error, attempt, advice)
                    raise
            seconds = max(seconds, least)
            level = logging.WARNING if attempt <= retries else logging.DEBUG
            _LOG.log(level, "%s; attempt %d follows in %.1f s", error, attempt + 1, seconds)
            emit_retry(str(error), seconds)
        else:
            outage.end()
            return result
        sleep(seconds)


def _give_up(error: Exception, attempts: int, advice: str) -> None:
    """Add the number of attempts to an error, and what to do."""
    made = f"{attempts} attempt{'s'[: attempts > 1]}"
    error.args = (f"{error}; gave up after {made}{advice}",)


def backoff_seconds(attempt: int) -> float:
    """Return the wait after a failed attempt, which are counted from 1, with jitter."""
    return _min_backoff_seconds(attempt) + random.uniform(0.0, _MAX_JITTER_SECONDS)


def max_pause_seconds(retries: int) -> float:
    """Return the longest wait after a failed attempt if there are so many retries."""
    if not retries:
        return 0.0
    return max(_min_backoff_seconds(retries) + _MAX_JITTER_SECONDS, _MAX_RETRY_AFTER_SECONDS)


def _min_backoff_seconds(attempt: int) -> float:
    return min(_FIRST_WAIT_SECONDS * 2.0 ** min(attempt - 1, 10), _MAX_WAIT_SECONDS)
