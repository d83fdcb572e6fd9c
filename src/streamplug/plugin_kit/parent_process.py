"""Ends of worker processes whose parent process has died."""

from __future__ import annotations

import multiprocessing
import os
from functools import cache
from multiprocessing.connection import wait
from threading import Thread


def abandoned() -> bool:
    """Return whether this is a worker process whose parent process has died."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def end_with_parent() -> None:
    """Let this process exit as soon as its parent process dies, if ``multiprocessing`` has started it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        _watch(os.getpid(), parent.sentinel)


@cache  # by process: a forked copy has no thread that watches
def _watch(_: int, sentinel: int) -> None:
    Thread(target=_exit_after, args=(sentinel,), name="streamplug-parent", daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
