"""Coroutines run on the event loop of another thread."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import Any

from streamplug.plugin_kit import Cancelled, Scope, current
from streamplug.types import Buffer
from streamplug_fsspec.blocks import BLOCK_BYTES, MAX_UNWRITTEN_SECONDS, BlockBuffer, write
from streamplug_fsspec.preallocation import preallocate

MAX_UNWRITTEN_BYTES = 3 * BLOCK_BYTES
"""Limit of bytes buffered for the writing thread."""


def run_on_loop(loop: Any, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine and return its result; cancel it and raise `Cancelled` if the consumer stops."""
    with _running(loop, make) as ended:
        return ended.result()


def store_on_loop(
    loop: Any, make: Callable[[IncomingFile], Coroutine[Any, Any, Any]], path: Path
) -> Any:
    """Run a coroutine that writes a file, store its output in this thread, and return its result.

    The loop receives for all threads on one core; it receives a quarter more if it does not wait for disk
    writes. No file is created if the coroutine raises before writing anything.

    Raises:
        Cancelled: If the consumer stops.
        OSError: If the file cannot be written.
    """
    incoming = IncomingFile()
    with _running(loop, lambda: make(incoming)) as ended:
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
    """A pipe from a coroutine to the thread that stores its output.

    Attributes:
        expected: Total number of bytes, if known before the first write.
    """

    expected: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self._pieces = BlockBuffer()
        self._ended = False
        self._changed = Condition()

    def write(self, data: Any) -> int:
        """Buffer bytes, which must not change afterwards; block while the buffer is full.

        Raises:
            BrokenPipeError: If the reader has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pieces.size < MAX_UNWRITTEN_BYTES or self._ended)
            if self._ended:
                raise BrokenPipeError("the reader has stopped")
            self._pieces.add(data)
            if self._pieces.size >= BLOCK_BYTES:
                self._changed.notify_all()
        return len(data)

    def end(self) -> None:
        """Close both ends of the pipe."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> Sequence[Buffer]:
        """Wait for bytes and return them; empty at the end."""
        with self._changed:
            while not self._changed.wait_for(self._has_block, MAX_UNWRITTEN_SECONDS):
                if self._pieces.size:
                    break
            pieces = self._pieces.take(everything=self._ended)
            self._changed.notify_all()
        return pieces

    def _has_block(self) -> bool:
        return self._ended or self._pieces.size >= BLOCK_BYTES


@contextmanager
def _running(loop: Any, make: Callable[[], Coroutine[Any, Any, Any]]) -> Iterator[Future[Any]]:
    """Run a coroutine as a future that is cancelled at the end of the block or if the consumer stops."""
    scope = current() or Scope()
    tasks: list[Any] = []

    async def work() -> Any:
        task: Any = asyncio.current_task()
        # Else asyncio logs the exception.
        task.add_done_callback(lambda _: task.cancelled() or task.exception())
        tasks.append(task)
        if scope.stopped:
            raise asyncio.CancelledError
        return await make()

    def stop() -> None:
        for task in tasks:
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
