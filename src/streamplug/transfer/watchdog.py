"""Stall timeout and cancellation of requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from streamplug.errors import StorageError, Transient
from streamplug.plugin_kit.cancellation import Scope, abandoned, check, ending, inside
from streamplug.transfer.observer import current, task_context
from streamplug.transfer.threads import on_thread

T = TypeVar("T")
_GLANCE = 1.0


class StalledError(Transient):
    """No bytes arrived for the stall timeout."""


def run_with_timeout(
    work: Callable[[], T], url: str, timeout: float, arrived: Callable[[], int] = lambda: 0
) -> T:
    """Return the result of `work`, which runs on another thread with a stall timeout in seconds.

    `arrived` returns the number of bytes so far; without it, the whole call must finish within the timeout.

    Raises:
        StalledError: If no bytes arrive for `timeout` seconds.
        StorageError: If the parent process is gone.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    scope, task, running = Scope(), current(), threading.Lock()

    def run() -> None:
        try:
            with inside(scope), task_context(task):
                results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)

    with ending(scope):
        running.acquire()
        try:
            on_thread("streamplug-request", run, running.release)
        except RuntimeError as error:  # threads may become available: retry
            raise Transient(
                f"{url}: {error}; raise the limit of processes (ulimit -u) or of memory"
            ) from error
        _wait(running, url, timeout, arrived)
    if errors:
        try:
            raise errors.pop()
        finally:
            # Break the reference cycle between the error and this frame.
            del errors
    return results[0]


def bytes_of(part: Path) -> int:
    """Return the size of a file and of a client's partial files, whose names start with its name."""
    total = 0
    for path in part.parent.glob(f"{part.name}*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _wait(running: threading.Lock, url: str, timeout: float, arrived: Callable[[], int]) -> None:
    size, since = 0, time.monotonic()
    while not running.acquire(timeout=min(_GLANCE, timeout / 4)):
        check()
        if abandoned():
            raise StorageError(f"{url}: the process that this one works for is gone")
        there, now = arrived(), time.monotonic()
        if there != size:
            size, since = there, now
        elif now - since >= timeout:
            raise StalledError(
                f"{url}: nothing arrived for {timeout:g} s, {size} bytes before; see "
                "the connection, or pass a longer download_timeout="
            )
