"""Threads that are used again: one that has nothing to do waits a moment before it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

_LINGER = 0.5
"""Seconds that a thread waits for something to do; requests mostly follow each other more closely."""

_END_SECONDS = 5.0


class _Thread:
    """A daemon: as such, one that hangs keeps no process from ending."""

    def __init__(self) -> None:
        self.name = ""
        self.work: Callable[[], object] | None = None
        self.done: Callable[[], object] | None = None
        self.told = threading.Lock()
        self.told.acquire()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        waiting = _waiting
        while self.work is not None and self.done is not None:
            self.thread.name = self.name
            self.work()
            self.thread.name = "streamplug-idle"
            done = self.done
            self.work = self.done = None  # they hold what nobody may need any more
            waiting.append(self)
            done()
            del done
            if not self.told.acquire(timeout=_LINGER):
                try:
                    waiting.remove(self)
                except ValueError:  # it was chosen just now
                    self.told.acquire()


_waiting: list[_Thread] = []


def on_thread(name: str, work: Callable[[], object], done: Callable[[], object]) -> None:
    """Do something on another thread; returns at once.

    Args:
        name: What that thread is called meanwhile.
        work: What to do; it must not raise.
        done: Called on it afterwards, when it can be used again; quick, and must not raise.

    Raises:
        RuntimeError: If there can be no more threads.
    """
    try:
        thread = _waiting.pop()  # the last one: it was awake most recently
    except IndexError:
        thread = _Thread()
        thread.name, thread.work, thread.done = name, work, done
        thread.thread.start()
    else:
        thread.name, thread.work, thread.done = name, work, done
        thread.told.release()


def make_ready(number: int) -> None:
    """Have so many threads wait for something to do, in a moment; returns at once.

    Starting one takes longer than waking one: this is for the time in which an answer is waited for.
    """

    def start() -> None:
        with suppress(RuntimeError):  # then whoever needs one is told
            for _ in range(number - len(_waiting)):
                thread = _Thread()
                thread.work = thread.done = _nothing
                thread.thread.start()

    with suppress(RuntimeError):
        on_thread("streamplug-ready", start, _nothing)


def _nothing() -> None:
    """Do nothing."""


def end_idle() -> None:
    """Have all threads end that have nothing to do."""
    ended = []
    try:
        while True:
            thread = _waiting.pop()
            thread.told.release()
            ended.append(thread.thread)
    except IndexError:
        for each in ended:
            each.join(_END_SECONDS)


# A process of several threads is not forked without a warning; and those would be the parent's.
os.register_at_fork(before=end_idle, after_in_child=_waiting.clear)
