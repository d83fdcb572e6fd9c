"""Repeated calls, and waiting for files."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def wait_for_file_to_exist(
    filename: str, poll_interval: float, timeout: float, err_msg: str
) -> None:
    """Wait until a file exists.

    Args:
        filename: Its path.
        poll_interval: Seconds between two checks, and after the last.
        timeout: Timeout in seconds.
        err_msg: Start of the error message.

    Raises:
        RuntimeError: If the timeout expires.
    """
    start = time.monotonic()
    while True:
        time.sleep(poll_interval)
        if Path(filename).exists():
            time.sleep(poll_interval)
            return
        waited = time.monotonic() - start
        if waited > timeout:
            raise RuntimeError(f"{err_msg}{timeout:.3f} < {waited:.3f} secs.")


def retry(
    exc_class: Any = Exception,
    clean_up_fn: Callable[[], Any] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Any:
    """Return a decorator that retries a function.

    Args:
        exc_class: Exception class or classes to retry; or the function, as in ``@retry``.
        clean_up_fn: Called after each failed attempt.
        num_attempts: Maximum number of calls.
        initial_backoff: Backoff after the first attempt in seconds; doubled after each other.
        max_jitter: Maximum random addition in seconds.

    Raises:
        ValueError: If `num_attempts` is less than 1.
    """
    if num_attempts < 1:
        raise ValueError(f"num_attempts={num_attempts}: must be at least 1")
    is_bare = not isinstance(exc_class, (type, Sequence))  # @retry, without parentheses
    classes: Any = Exception if is_bare else exc_class
    if isinstance(classes, Sequence):
        classes = tuple(classes)

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            attempts = 0
            while True:
                try:
                    return function(*args, **kwargs)
                except classes:
                    if clean_up_fn is not None:
                        clean_up_fn()
                    attempts += 1
                    if attempts == num_attempts:
                        raise
                jitter = random.random() * max_jitter
                time.sleep(initial_backoff * 2 ** (attempts - 1) + jitter)

        return call  # type: ignore[return-value]  # it has the same signature

    return decorated(exc_class) if is_bare else decorated
