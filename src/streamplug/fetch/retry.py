"""Tries again what may succeed the next time."""

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

from streamplug.errors import Transient
from streamplug.fetch.observe import retried
from streamplug.interfaces.cancel import sleep

T = TypeVar("T")
_LOG = logging.getLogger("streamplug.fetch")
_WAIT = wait_exponential(multiplier=0.5, max=30.0) + wait_random(0.0, 0.5)


def retrying(operation: Callable[[], T], retries: int) -> T:
    """Return what `operation` returns, trying again after a `Transient` error.

    Args:
        operation: What to do.
        retries: How often to try again; waits grow from half a second to 30, with jitter.

    Raises:
        StorageError: The last error once the retries are used up, or any that is not `Transient`.
    """
    attempts = Retrying(
        retry=retry_if_exception_type(Transient),
        stop=stop_after_attempt(retries + 1),
        wait=_WAIT,
        sleep=sleep,
        before_sleep=_tell,
        reraise=True,
    )
    return attempts(operation)


def _tell(state: RetryCallState) -> None:
    cause = str(state.outcome.exception()) if state.outcome else ""
    pause = state.upcoming_sleep
    _LOG.warning("%s; attempt %d follows in %.1f s", cause, state.attempt_number + 1, pause)
    retried(cause, pause)
