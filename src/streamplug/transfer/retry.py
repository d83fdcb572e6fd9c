"""Retries with exponential backoff."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from streamplug.errors import CorruptShardError, Transient
from streamplug.plugin_kit.cancellation import sleep
from streamplug.transfer.observer import emit_retry

T = TypeVar("T")
_LOG = logging.getLogger("streamplug.transfer")
_WAIT = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 0.5)
_LONGEST_ASKED_FOR = 60.0
# Data that differ from the index may have been damaged in transit.
RETRYABLE_ERRORS = (Transient, CorruptShardError)


def call_with_retries(operation: Callable[[], T], retries: int) -> T:
    """Call `operation`, retrying `RETRYABLE_ERRORS` with exponential backoff.

    Waits grow from 0.5 to 30 seconds, with jitter, and are no shorter than the server asks for, up to a
    minute. The last error is raised, with the number of attempts.
    """
    try:
        return operation()  # tenacity's setup takes longer than some operations
    except RETRYABLE_ERRORS as error:
        failed: list[Exception] = [error]

    def again() -> T:
        if failed:
            raise failed.pop()
        return operation()

    attempts = Retrying(
        retry=retry_if_exception_type(RETRYABLE_ERRORS),
        stop=stop_after_attempt(retries + 1),
        wait=_wait,
        sleep=sleep,
        before_sleep=_tell,
        reraise=True,
    )
    try:
        return attempts(again)
    except RETRYABLE_ERRORS as error:
        made = f"{retries + 1} attempt{'s'[: retries > 0]}"
        error.args = (f"{error}; gave up after {made}, see download_retry=",)
        raise


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, Transient) else 0.0
    return max(_WAIT(state), min(asked, _LONGEST_ASKED_FOR))


def _tell(state: RetryCallState) -> None:
    cause = str(state.outcome.exception()) if state.outcome else ""
    pause = state.upcoming_sleep
    _LOG.warning("%s; attempt %d follows in %.1f s", cause, state.attempt_number + 1, pause)
    emit_retry(cause, pause)
