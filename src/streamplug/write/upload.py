"""Sends finished files to a storage while the next ones are being written."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from streamplug.interfaces import Storage
from streamplug.transfer.retry import call_with_retries


class Uploader:
    """Uploads files in the background, a few at a time, and tells of failures at the next call."""

    def __init__(
        self, storage: Storage, folder: Path, *, keep_local: bool, retries: int, threads: int
    ) -> None:
        """Upload files of `folder`, by their names in it.

        Args:
            storage: Where to.
            folder: Where the files are.
            keep_local: Whether a file stays once it was uploaded.
            retries: How often a failed upload is tried again.
            threads: How many at once; as many again may wait, so that local space is bounded.
        """
        self._storage = storage
        self._folder = folder
        self._keep_local = keep_local
        self._retries = retries
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamplug-upload")
        self._pending: deque[Future[None]] = deque()

    def put(self, basename: str) -> None:
        """Upload a file, sooner or later.

        Raises:
            StorageError: If an earlier upload failed.
        """
        while len(self._pending) >= 2 * self._threads:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._upload, basename))

    def drain(self) -> None:
        """Wait until all files are uploaded.

        Raises:
            StorageError: If an upload failed.
        """
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Drop the uploads that have not begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _upload(self, basename: str) -> None:
        path = self._folder / basename
        call_with_retries(lambda: self._storage.upload(path, basename), self._retries)
        if not self._keep_local:
            path.unlink()
