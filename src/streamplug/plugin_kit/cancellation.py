"""Cancellation of background threads whose consumer has stopped.

Threads that fetch ahead work inside a `Scope`. Whatever may take long asks it, through `check`, `sleep` or
`Scope.on_stop`; outside of a scope there is nothing to ask.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager


class Cancelled(BaseException):
    """The consumer stopped; not an `Exception`, so that nothing on the way takes it for a failure."""


class Scope:
    """What is done for one consumer, who may stop at any time."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # the collector may stop it while this very thread holds it
        self._callbacks: list[Callable[[], object]] = []

    @property
    def stopped(self) -> bool:
        """Whether the consumer has stopped."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End everything in this scope; returns at once."""
        with self._lock:
            self._stopped.set()
            callbacks, self._callbacks = self._callbacks, []
        with ExitStack() as all_of_them:  # also where one fails
            for callback in callbacks:
                all_of_them.callback(callback)

    def wait(self, seconds: float) -> bool:
        """Wait, unless the consumer stops; returns whether it did."""
        return self._stopped.wait(seconds)

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call something if the consumer stops during a block.

        Raises:
            Cancelled: If it had stopped before.
        """
        with self._lock:
            self._callbacks.append(callback)
        try:
            if self.stopped:  # looked at only now: whoever stops it later finds the callback
                raise Cancelled
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Say that the thread only waits for another process; others may work in its place."""
        yield


class _Current(threading.local):
    scope: Scope | None = None


_current = _Current()


def current() -> Scope | None:
    """Return the scope that this thread works in, or None."""
    return _current.scope


@contextmanager
def inside(scope: Scope) -> Iterator[None]:
    """Let this thread work in a scope."""
    before, _current.scope = _current.scope, scope
    try:
        yield
    finally:
        _current.scope = before


@contextmanager
def ending(scope: Scope) -> Iterator[None]:
    """Stop a scope after a block, or as soon as the consumer of this thread stops.

    Raises:
        Cancelled: If the consumer had stopped before.
    """
    outer = _current.scope
    try:
        if outer is None:
            yield
        else:
            with outer.on_stop(scope.stop):
                yield
    finally:
        scope.stop()


def abandoned() -> bool:
    """Say whether the process is gone that started this one to work for it, such as a loader's."""
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()


def check() -> None:
    """Stop here if nobody waits any more.

    Raises:
        Cancelled: If so.
    """
    scope = _current.scope
    if scope is not None and scope.stopped:
        raise Cancelled


def sleep(seconds: float) -> None:
    """Sleep, unless the consumer stops.

    Raises:
        Cancelled: If it does.
    """
    scope = _current.scope
    if scope is None:
        time.sleep(seconds)
    elif scope.wait(seconds):
        raise Cancelled


@contextmanager
def idle() -> Iterator[None]:
    """Say that this thread only waits for another process; see `Scope.idle`."""
    scope = _current.scope
    if scope is None:
        yield
    else:
        with scope.idle():
            yield
