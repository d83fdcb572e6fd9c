"""Coroutines run on the event loop of another thread."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Any

from streamplug.plugin_kit.blocks import BLOCK_BYTES, MAX_UNWRITTEN_SECONDS, BlockBuffer, write
from streamplug.plugin_kit.cancellation import Cancelled, Scope, current
from streamplug.plugin_kit.preallocate import preallocate
from streamplug.types import Buffer

MAX_UNWRITTEN_BYTES = 3 * BLOCK_BYTES
"""Bytes that may wait to be written to the file."""


def run(loop: Any, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a coroutine returns; it ends when nobody waits for it.

    Raises:
        Cancelled: If so.
        BaseException: What the coroutine raised.
    """
    from fsspec.asyn import sync

    scope = current()
    return sync(loop, make) if scope is None else wait(scope, loop, make)


async def gather_results(each: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Return what several coroutines, or the like, return or raise; they end when this one does."""
    return await asyncio.gather(*(make() for make in each), return_exceptions=True)


def wait(scope: Scope, loop: Any, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a coroutine returns.

    Raises:
        Cancelled: If the scope is stopped.
        BaseException: What the coroutine raised.
    """
    with _running(scope, loop, make) as ended:
        return ended.result()


def store(
    scope: Scope, loop: Any, make: Callable[[IncomingFile], Coroutine[Any, Any, Any]], path: Path
) -> Any:
    """Return what a coroutine returns that writes to a file; this thread stores what it writes.

    A loop receives for all threads and takes one processor at most: it can receive a fourth more
    when it does not wait for files.

    Raises:
        Cancelled: If the scope is stopped.
        OSError: If the file cannot be written.
        BaseException: What the coroutine raised; if it wrote nothing before, there is no file.
    """
    incoming = IncomingFile()
    with _running(scope, loop, lambda: make(incoming)) as ended:
        ended.add_done_callback(lambda _: incoming.end())
        try:
            pieces = incoming.take()
            if not pieces:
                ended.result()
            with path.open("wb", buffering=0) as file:
                preallocate(file, incoming.expected)
                while pieces:
                    write(file, pieces)
                    pieces = incoming.take()
        finally:
            incoming.end()
        return ended.result()


class IncomingFile(io.RawIOBase):
    """A file that a coroutine writes to, for another thread to take what was written.

    Attributes:
        expected: How many bytes there will be, if that is known before the first.
    """

    expected: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self._pieces = BlockBuffer()
        self._ended = False
        self._changed = Condition()

    def write(self, data: Any) -> int:
        """Keep bytes, which must not change, until they are taken; waits if too many are kept.

        Raises:
            BrokenPipeError: If they never will be.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pieces.size < MAX_UNWRITTEN_BYTES or self._ended)
            if self._ended:
                raise BrokenPipeError("nobody takes what is written")
            self._pieces.add(data)
            if self._pieces.size >= BLOCK_BYTES:
                self._changed.notify_all()
        return len(data)

    def end(self) -> None:
        """Write and wait no more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> Sequence[Buffer]:
        """Wait for bytes and return them; none at the end."""
        with self._changed:
            while (
                not self._changed.wait_for(self._enough, MAX_UNWRITTEN_SECONDS)
                and not self._pieces.size
            ):
                pass
            pieces = self._pieces.take(everything=self._ended)
            self._changed.notify_all()
        return pieces

    def _enough(self) -> bool:
        return self._ended or self._pieces.size >= BLOCK_BYTES


@contextmanager
def _running(
    scope: Scope, loop: Any, make: Callable[[], Coroutine[Any, Any, Any]]
) -> Iterator[Future[Any]]:
    """Give what a coroutine will return, which ends with the block or when the scope is stopped."""
    begun: list[Any] = []

    async def work() -> Any:
        task: Any = asyncio.current_task()
        task.add_done_callback(
            lambda _: task.cancelled() or task.exception()
        )  # or asyncio tells it
        begun.append(task)
        if scope.stopped:
            raise asyncio.CancelledError
        return await make()

    def stop() -> None:
        for task in begun:
            loop.call_soon_threadsafe(task.cancel)

    with scope.on_stop(stop):
        ended = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            yield ended
        except CancelledError:
            if scope.stopped:
                raise Cancelled from None
            raise
        finally:
            ended.cancel()
