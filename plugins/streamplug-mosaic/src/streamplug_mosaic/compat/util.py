"""Helper functions of mosaicml-streaming that scripts use."""

from __future__ import annotations

import functools
import logging
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import streamplug

F = TypeVar("F", bound=Callable[..., Any])

_LOG = logging.getLogger("streamplug")


def merge_index(*args: Any, **kwargs: Any) -> None:
    """Write the index of a data set of parts: ``merge_index(parts, out, …)`` or ``merge_index(out, …)``.

    Args:
        *args: ``index_file_urls`` if there are some, ``out``, ``keep_local``, ``download_timeout``.
        **kwargs: Those that are given by name.
    """
    names = ["index_file_urls", "out", "keep_local", "download_timeout"]
    if not (args and isinstance(args[0], list)):
        del names[0]
    given = {**dict(zip(names, args)), **kwargs}
    places = [given.pop(name) for name in ("index_file_urls", "out") if name in given]
    streamplug.merge_index(*places, **given)


def clean_stale_shared_memory() -> None:
    """Say that there is nothing to do."""
    _LOG.warning(
        "clean_stale_shared_memory() does nothing: streamplug leaves no shared memory behind"
    )


def get_list_arg(text: str) -> list[str]:
    """Return the parts of a text between commas; none of an empty text."""
    return text.split(",") if text else []


def wait_for_file_to_exist(
    filename: str, poll_interval: float, timeout: float, err_msg: str
) -> None:
    """Wait until there is a file.

    Args:
        filename: Its path.
        poll_interval: Seconds between two looks; as long again after it was found.
        timeout: Seconds after which to give up.
        err_msg: What the error says first.

    Raises:
        RuntimeError: If there is none after that time.
    """
    begun = time.monotonic()
    while True:
        time.sleep(poll_interval)
        if Path(filename).exists():
            time.sleep(poll_interval)
            return
        waited = time.monotonic() - begun
        if waited > timeout:
            raise RuntimeError(f"{err_msg}{timeout:.3f} < {waited:.3f} secs.")


def retry(
    exc_class: Any = Exception,
    clean_up_fn: Callable[[], Any] | None = None,
    num_attempts: int = 3,
    initial_backoff: float = 1.0,
    max_jitter: float = 0.5,
) -> Any:
    """Return a decorator that calls a function again when it fails.

    Args:
        exc_class: An exception after which to do so, or several; or the function, as in ``@retry``.
        clean_up_fn: Called after each failed attempt.
        num_attempts: How often it is called at most, at least once.
        initial_backoff: Seconds to wait after the first attempt, twice as many after each other.
        max_jitter: Most seconds that are added to them at random.

    Raises:
        ValueError: If there are no attempts.
    """
    if num_attempts < 1:
        raise ValueError(f"num_attempts={num_attempts}: must be at least 1")
    is_bare = not isinstance(exc_class, (type, Sequence))  # @retry, without parentheses
    kinds: Any = Exception if is_bare else exc_class
    if isinstance(kinds, Sequence):
        kinds = tuple(kinds)

    def decorated(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            failed = 0
            while True:
                try:
                    return function(*args, **kwargs)
                except kinds:
                    if clean_up_fn is not None:
                        clean_up_fn()
                    failed += 1
                    if failed == num_attempts:
                        raise
                jitter = random.random() * max_jitter
                time.sleep(initial_backoff * 2 ** (failed - 1) + jitter)

        return call  # type: ignore[return-value]  # it has the same signature

    return decorated(exc_class) if is_bare else decorated
