"""Sync of finished files to the disk while the next ones are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from streamplug.plugin_kit import sync_files
from streamplug.transfer import map_output_errors


class SyncQueue:
    """Syncs files in a thread: all that were finished during the last sync together.

    Any number of files may wait: Linux slows the writer down when too much of memory is not on the disk yet.
    Errors name the file, and are raised by the next call.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="streamplug-sync")
        self._running: Future[None] | None = None
        self._waiting: deque[Path] = deque()

    def put(self, path: Path) -> None:
        """Queue a file."""
        if self._running is not None and self._running.done():
            self._wait()
        self._waiting.append(path)
        if self._running is None:
            self._running = self._pool.submit(self._sync)

    def drain(self) -> None:
        """Wait until all files are on the disk."""
        self._wait()
        self._sync()  # those that were put while the thread ended

    def close(self) -> None:
        """Drop files that wait, and wait for those in progress."""
        self._waiting.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _wait(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def _sync(self) -> None:
        try:
            sync_files(self._take())
        except OSError as error:
            with map_output_errors(Path(error.filename)):
                raise

    def _take(self) -> Iterator[Path]:
        while True:
            try:
                path = self._waiting.popleft()
            except IndexError:
                return
            yield path
