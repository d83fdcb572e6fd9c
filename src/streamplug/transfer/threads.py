"""Reusable daemon threads that end after a short idle time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

_LINGER = 0.5  # idle seconds before a thread ends

_END_SECONDS = 5.0


class _Thread:
    """A daemon thread, so that one that hangs does not keep the process from exiting."""

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
            self.work = self.done = None  # release what the closures refer to
            waiting.append(self)
            done()
            del done
            if not self.told.acquire(timeout=_LINGER):
                try:
                    waiting.remove(self)
                except ValueError:  # another thread has just popped it
                    self.told.acquire()


_waiting: list[_Thread] = []


def on_thread(name: str, work: Callable[[], object], done: Callable[[], object]) -> None:
    """Run `work` on an idle or new thread called `name`, without waiting for it.

    `done` is called on the thread afterwards, when it can be reused; it must be quick. Neither may raise.

    Raises:
        RuntimeError: If no thread can be started.
    """
    try:
        thread = _waiting.pop()  # LIFO: it was awake most recently
    except IndexError:
        thread = _Thread()
        thread.name, thread.work, thread.done = name, work, done
        thread.thread.start()
    else:
        thread.name, thread.work, thread.done = name, work, done
        thread.told.release()


def make_ready(number: int) -> None:
    """Start threads in the background until `number` are idle, as starting one is slower than waking one."""

    def start() -> None:
        with suppress(RuntimeError):  # the next `on_thread` reports it
            for _ in range(number - len(_waiting)):
                thread = _Thread()
                thread.work = thread.done = _nothing
                thread.thread.start()

    with suppress(RuntimeError):
        on_thread("streamplug-ready", start, _nothing)


def _nothing() -> None:
    """Do nothing."""


def end_idle() -> None:
    """End all idle threads."""
    ended = []
    try:
        while True:
            thread = _waiting.pop()
            thread.told.release()
            ended.append(thread.thread)
    except IndexError:
        for each in ended:
            each.join(_END_SECONDS)


# Forking with several threads warns, and a child has none of its parent's threads.
os.register_at_fork(before=end_idle, after_in_child=_waiting.clear)
