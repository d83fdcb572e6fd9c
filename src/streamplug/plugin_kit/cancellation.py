"""Cancellation of background threads whose consumer has stopped.

Prefetching threads work inside a `Scope`. Whatever may take long checks it with `check`, `sleep` or
`Scope.on_stop`, which do nothing outside of a scope.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import parent_process

from streamplug.errors import CorruptShardError
from streamplug.plugin_kit.parent_process import abandoned

_LEFT_POLL_SECONDS = 0.5
_consumers_left: list[Callable[[], bool]] = []


class Cancelled(BaseException):
    """The consumer stopped; not an `Exception`, so that handlers of failures do not catch it."""


class OversizeError(CorruptShardError):
    """A download is larger than its scope allows."""


class Scope:
    """Work for one consumer, who may cancel it at any time.

    Attributes:
        max_bytes: Maximum size in bytes of a file that is downloaded in it; None is unlimited.
    """

    max_bytes: int | None = None

    def __init__(self) -> None:
        self._stopped = threading.Event()
        # Garbage collection may call stop() in the thread that holds it.
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[], object]] = []

    @property
    def stopped(self) -> bool:
        """Whether the consumer has stopped."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Cancel everything in this scope, without waiting."""
        with self._lock:
            self._stopped.set()
            callbacks, self._callbacks = self._callbacks, []
        with ExitStack() as stack:  # calls all of them even if one raises
            for callback in callbacks:
                stack.callback(callback)

    def wait(self, seconds: float) -> bool:
        """Wait for a number of seconds; return early, and True, if the consumer stops."""
        return self._stopped.wait(seconds)

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call a function if the consumer stops during the block; raise `Cancelled` if it already has."""
        with self._lock:
            self._callbacks.append(callback)
        try:
            if self.stopped:  # checked after registering: a later stop() sees the callback
                raise Cancelled
            yield
        finally:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Declare that the thread only waits for another process; others may work in its place."""
        yield


class _ThreadScope(threading.local):
    scope: Scope | None = None


_current = _ThreadScope()


def current() -> Scope | None:
    """Return the scope of this thread, or None."""
    return _current.scope


@contextmanager
def inside(scope: Scope) -> Iterator[None]:
    """Run the block of this thread in a scope."""
    before, _current.scope = _current.scope, scope
    try:
        yield
    finally:
        _current.scope = before


@contextmanager
def ending(scope: Scope) -> Iterator[None]:
    """Stop a scope after the block, or as soon as the consumer of this thread stops."""
    outer = _current.scope
    try:
        if outer is None:
            yield
        else:
            with outer.on_stop(scope.stop):
                yield
    finally:
        scope.stop()


def check() -> None:
    """Raise `Cancelled` if the consumer has stopped."""
    scope = _current.scope
    if scope is not None and scope.stopped:
        raise Cancelled


def sleep(seconds: float) -> None:
    """Sleep; raise `Cancelled` if the consumer stops meanwhile, also one in another process."""
    scope, end = _current.scope, time.monotonic() + seconds
    is_worker = parent_process() is not None
    while True:
        wait = min(seconds, _LEFT_POLL_SECONDS) if is_worker else seconds
        if scope is None:
            time.sleep(wait)
        elif scope.wait(wait):
            raise Cancelled
        if not is_worker:
            return
        if abandoned() or any(has_left() for has_left in _consumers_left):
            raise Cancelled
        if (seconds := end - time.monotonic()) <= 0:
            return


@contextmanager
def consumed_elsewhere(has_left: Callable[[], bool]) -> Iterator[None]:
    """During the block, end the sleep of all threads of this worker process if its consumer has left.

    The consumer is the parent process, which stops no scope here; `has_left` returns whether it has stopped.
    """
    _consumers_left.append(has_left)
    try:
        yield
    finally:
        _consumers_left.remove(has_left)


@contextmanager
def idle() -> Iterator[None]:
    """Declare that this thread only waits for another process; see `Scope.idle`."""
    scope = _current.scope
    if scope is None:
        yield
    else:
        with scope.idle():
            yield
