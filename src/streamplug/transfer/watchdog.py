"""Watchdog of requests: cancels on stall, or when the consumer stops."""

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
    """Nothing arrived for too long."""


def run_with_timeout(
    work: Callable[[], T], url: str, timeout: float, arrived: Callable[[], int] = lambda: 0
) -> T:
    """Return what `work` returns, for as long as somebody waits for it and something arrives.

    Args:
        work: Done on another thread, as no client can be trusted to give up by itself.
        url: What it asks for.
        timeout: Seconds after which it fails during which nothing arrived.
        arrived: Returns how many bytes there are; without it only the end is seen.

    Raises:
        StalledError: If nothing arrived for too long.
        StorageError: If the process is gone that this one works for.
        BaseException: What `work` raised.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    scope, task, running = Scope(), current(), threading.Lock()

    def run() -> None:
        try:
            with inside(scope), task_context(task):
                results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)

    with ending(scope):
        running.acquire()
        try:
            on_thread("streamplug-request", run, running.release)
        except RuntimeError as error:  # others may end meanwhile
            raise Transient(
                f"{url}: {error}; raise the limit of processes (ulimit -u) or of memory"
            ) from error
        _wait(running, url, timeout, arrived)
    if errors:
        try:
            raise errors.pop()
        finally:
            # Kept in a frame that it knows, an error would keep all its callers' values alive.
            del errors
    return results[0]


def bytes_of(part: Path) -> int:
    """Return the bytes of a file, and of those that some clients write first, named after it."""
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
