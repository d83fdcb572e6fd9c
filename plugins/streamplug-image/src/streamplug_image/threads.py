"""Threads that decode: those of this process, shared by all who ask, no more than it has cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial


@cache
def _helpers() -> ThreadPoolExecutor:
    """Return the threads of this process, which start when they are needed and end with it."""
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="streamplug-image")


if hasattr(os, "register_at_fork"):  # a fork has none of the threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def each(count: int, work: Callable[[int], object], threads: int) -> None:
    """Do `work` for every number below `count`, by this thread and helpers.

    Args:
        count: How many.
        work: Does one; must let go of the interpreter's lock for helpers to be of use.
        threads: How many threads to use, this one included.

    Raises:
        Exception: What the work for the lowest number that failed raised. None higher is begun then.
    """
    if min(threads, count) <= 1:
        for number in range(count):
            work(number)
        return
    todo = deque(range(count))
    failed: dict[int, Exception] = {}
    helpers = _summoned(min(threads, count) - 1, partial(_take_turns, todo, work, failed))
    try:
        _take_turns(todo, work, failed)
    finally:
        todo.clear()
        # This thread has left nothing to do for those that have not begun.
        for helper in helpers:
            if not helper.cancel():
                helper.result()
    if failed:
        raise failed[min(failed)]


def _summoned(number: int, work: Callable[[], None]) -> list[Future[None]]:
    summoned: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter ends, or has no more threads: one is enough
        summoned.extend(_helpers().submit(work) for _ in range(number))
    return summoned


def _take_turns(
    todo: deque[int], work: Callable[[int], object], failed: dict[int, Exception]
) -> None:
    while True:
        try:
            number = todo.popleft()
        except IndexError:
            return
        try:
            work(number)
        except Exception as error:  # noqa: BLE001 - raised where all were asked for
            failed[number] = error
            todo.clear()
