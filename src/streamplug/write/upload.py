"""Upload and sync of finished files while the next ones are written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage
from streamplug.plugin_kit import sync_file, sync_files
from streamplug.transfer import (
    TemporaryDirectory,
    call_with_retries,
    check_process,
    map_output_errors,
    map_storage_errors,
)


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


class Uploader:
    """Uploads files, or syncs those that stay to the disk, in threads; the next call raises their errors.

    At most twice as many uploads as threads are pending, which bounds the local space.
    """

    def __init__(
        self,
        storage: Storage | None,
        folder: Path,
        *,
        keep_local: bool,
        durable: bool,
        retries: int,
        num_threads: int,
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._keep_local = keep_local or storage is None
        self.durable = durable and self._keep_local
        self._retries = retries
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="streamplug-upload")
        self._pending: deque[Future[None]] = deque()
        self._syncs = SyncQueue()  # of files that are not uploaded
        self._pid = os.getpid()

    def put(self, basename: str) -> None:
        """Queue a file."""
        check_process(self._pid)
        if self._storage is None:
            if self.durable:
                self._syncs.put(self._folder / basename)
            return
        while len(self._pending) >= 2 * self._num_threads:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._upload, self._storage, basename))

    def put_index(self, data: bytes) -> None:
        """Upload the index, once all other files are: its copy if it stays here, else the bytes."""
        storage = self._storage
        if storage is None:
            return
        if self._keep_local:
            self.put(INDEX_NAME)
            self.drain()
            return
        # Elsewhere, as after a failed upload it would be an index of shards that are not here.
        with TemporaryDirectory() as folder:
            path = folder / INDEX_NAME
            with map_output_errors(path, len(data)):
                path.write_bytes(data)
            _upload(storage, path, INDEX_NAME, self._retries)

    def drain(self) -> None:
        """Wait until all files are uploaded, or on the disk."""
        check_process(self._pid)
        while self._pending:
            self._pending.popleft().result()
        self._syncs.drain()

    def close(self) -> None:
        """Cancel pending files, and wait for those in progress; in a fork there are none."""
        if os.getpid() == self._pid:
            self._syncs.close()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _upload(self, storage: Storage, basename: str) -> None:
        path = self._folder / basename
        if self.durable:
            with map_output_errors(path):
                sync_file(path)
        before = path.stat()
        _upload(storage, path, basename, self._retries)
        # Replaced by its own upload if both locations are the same, such as by a mount or a chain of URLs.
        if not self._keep_local and os.path.samestat(before, path.stat()):
            path.unlink()


def _upload(storage: Storage, path: Path, key: str, retries: int) -> None:
    def attempt() -> None:
        with map_storage_errors(storage.url_of(key), path):
            storage.upload(path, key)

    call_with_retries(attempt, retries, option="retry")
