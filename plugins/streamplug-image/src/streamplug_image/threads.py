"""Thread pool for decoding, shared by the whole process and limited to one thread per core."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the thread pool of this process, which starts threads on demand."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="streamplug-image")


# Threads do not survive a fork.
os.register_at_fork(after_in_child=_helpers.cache_clear)


def run_numbered(count: int, work: Callable[[int], object], threads: int) -> None:
    """Call `work` for every number below `count`, on this thread and those of the pool.

    Args:
        count: Number of calls.
        work: Must release the GIL to run in parallel.
        threads: Maximum threads, including this one.

    Raises:
        Exception: The error of the lowest failed number; no calls start after a failure.
    """
    if min(threads, count) <= 1:
        for number in range(count):
            work(number)
        return
    pending_numbers = deque(range(count))
    failed: dict[int, Exception] = {}
    helpers = _start_helpers(
        min(threads, count) - 1, partial(_run_pending, pending_numbers, work, failed)
    )
    try:
        _run_pending(pending_numbers, work, failed)
    finally:
        pending_numbers.clear()
        # No work is left for calls that have not started.
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    if failed:
        raise failed[min(failed)]


def _start_helpers(number: int, work: Callable[[], None]) -> list[Future[None]]:
    started: list[Future[None]] = []
    with suppress(RuntimeError):  # at shutdown, or at the thread limit: this thread does all
        started.extend(_helpers().submit(work) for _ in range(number))
    return started


def _run_pending(
    pending_numbers: deque[int], work: Callable[[int], object], failed: dict[int, Exception]
) -> None:
    while True:
        try:
            number = pending_numbers.popleft()
        except IndexError:
            return
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failed[number] = error
            pending_numbers.clear()
