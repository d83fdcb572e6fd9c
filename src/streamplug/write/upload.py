"""Upload of finished files while the next ones are written."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from streamplug.interfaces import Storage
from streamplug.transfer.retry import call_with_retries


class Uploader:
    """Uploads files in background threads; the next call raises their errors.

    At most twice as many uploads as threads are pending, which bounds the local space.
    """

    def __init__(
        self, storage: Storage, folder: Path, *, keep_local: bool, retries: int, num_threads: int
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._keep_local = keep_local
        self._retries = retries
        self._num_threads = num_threads
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="streamplug-upload")
        self._pending: deque[Future[None]] = deque()

    def put(self, basename: str) -> None:
        """Queue a file for upload."""
        while len(self._pending) >= 2 * self._num_threads:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._upload, basename))

    def drain(self) -> None:
        """Wait until all files are uploaded."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Cancel pending uploads, and wait for those in progress."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _upload(self, basename: str) -> None:
        path = self._folder / basename
        call_with_retries(lambda: self._storage.upload(path, basename), self._retries)
        if not self._keep_local:
            path.unlink()
