"""Stall timeout and cancellation of requests."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from streamplug.errors import StorageError, Transient
from streamplug.plugin_kit import OversizeError, Scope, abandoned, check, ending, inside
from streamplug.transfer.observer import current, task_context
from streamplug.transfer.pool import Job
from streamplug.transfer.threads import run_on_thread

T = TypeVar("T")
_POLL_SECONDS = 1.0
TIMEOUT_ADVICE = ", or raise download_timeout="
"""End of the message of a `StalledError`."""


class StalledError(Transient):
    """No bytes arrived for the stall timeout."""


def run_with_timeout(
    work: Callable[[], T],
    url: str,
    timeout: float,
    count_bytes: Callable[[], int] = lambda: 0,
    max_bytes: int | None = None,
) -> T:
    """Return the result of `work`, which runs on another thread with a stall timeout in seconds.

    `count_bytes` returns how many have arrived; without it, the whole call must finish within the timeout.
    `max_bytes` is their maximum; None is unlimited.

    Raises:
        StalledError: If no bytes arrive for `timeout` seconds.
        OversizeError: If more than `max_bytes` arrive.
        StorageError: If the parent process is gone.
    """
    scope, task = Scope(), current()
    scope.max_bytes = max_bytes

    def work_in_scope() -> T:
        with inside(scope), task_context(task):
            return work()

    job = Job(work_in_scope)
    with ending(scope):
        try:
            run_on_thread(job)
        except RuntimeError as error:  # threads may become available: retry
            raise Transient(
                f"{url}: {error}; raise the limit of processes (ulimit -u) or of memory"
            ) from error
        _wait(job, url, timeout, count_bytes, max_bytes)
    if job.error is None:
        return job.result
    failure, job.error = job.error, None
    try:
        raise failure
    finally:
        del failure  # breaks the reference cycle between the error and this frame


def bytes_of(path: Path) -> int:
    """Return the size of a file and of a client's partial files, whose names start with its name."""
    total = 0
    for part in path.parent.glob(f"{glob.escape(path.name)}*"):
        with suppress(FileNotFoundError):
            total += part.stat().st_size
    return total


def _wait(
    job: Job[T],
    url: str,
    timeout: float,
    count_bytes: Callable[[], int],
    max_bytes: int | None,
) -> None:
    poll = min(_POLL_SECONDS, timeout / 4)
    size, stalled_seconds, last = 0, 0.0, time.monotonic()
    while not job.wait(poll):
        check()
        if abandoned():
            raise StorageError(f"{url}: the parent process has ended")
        new_size, now = count_bytes(), time.monotonic()
        # Time in which this process was suspended does not count.
        stalled_seconds = 0.0 if new_size != size else stalled_seconds + min(now - last, 2 * poll)
        size, last = new_size, now
        if max_bytes is not None and size > max_bytes:
            raise OversizeError(f"more than {max_bytes} bytes")
        if stalled_seconds >= timeout:
            raise StalledError(
                f"{url}: nothing arrived for {timeout:g} s, after {size} bytes; check the network"
                f"{TIMEOUT_ADVICE}"
            )
