"""Download of one file: whole or in parallel parts, with retries."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from streamplug.errors import HashMismatchError, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin_kit import commit_file
from streamplug.transfer import ranges
from streamplug.transfer.disk_errors import map_storage_errors
from streamplug.transfer.outage import NO_PATIENCE, Patience
from streamplug.transfer.ranges import Parts
from streamplug.transfer.retry import RETRYABLE_ERRORS, call_with_retries
from streamplug.transfer.stall_timeout import (
    StalledError,
    download_to_staging_file,
    run_with_timeout,
)
from streamplug.types import FileInfo

_LOG = logging.getLogger("streamplug.transfer")


def download_file(
    storage: Storage,
    file: FileInfo,
    path: Path,
    *,
    retries: int,
    timeout: float,
    patience: Patience = NO_PATIENCE,
    check_copy: Callable[[Path], None] = lambda _: None,
) -> None:
    """Download a file, in parallel parts if it is large and the storage serves ranges.

    Staging files are beside `path`, with its name as prefix; its directory must exist. One of them changes
    before each pause and each retry, which shows other processes that this one makes progress. `timeout` is
    the stall timeout of an attempt in seconds; pauses between attempts do not count. `check_copy` raises
    CorruptShardError for a damaged copy, which fails the attempt.

    Raises:
        CorruptShardError: If far more bytes arrive than the index says.
        OSError: If the local file cannot be written.
    """
    download = _Download(storage, file, path, timeout, check_copy)
    try:
        if file.bytes >= ranges.PARALLEL_DOWNLOAD_BYTES:
            try:
                if download.in_parts(retries, patience):
                    return
            except HashMismatchError as error:
                if not retries:
                    raise
                _LOG.warning("%s: downloading it as a whole", error)
                retries -= 1
        call_with_retries(download.as_a_whole, retries, patience=patience)
    finally:
        download.end()


class _StalledPartsError(StorageError):
    """Parts that did not arrive in time, which are not tried again."""


class _Download:
    """The download of one file; see `download_file`."""

    def __init__(
        self,
        storage: Storage,
        file: FileInfo,
        path: Path,
        timeout: float,
        check_copy: Callable[[Path], None],
    ) -> None:
        self._storage, self._file, self._path = storage, file, path
        self._timeout, self._check_copy = timeout, check_copy
        self._url = storage.url_of(file.basename)
        self._marker = path.with_name(f"{path.name}-attempt")

    def as_a_whole(self) -> None:
        """Make one attempt."""
        write = partial(self._storage.download, self._file.basename)
        with self._attempt():
            download_to_staging_file(
                write,
                self._url,
                self._path,
                self._timeout,
                check_copy=self._check_copy,
                size=self._file.bytes,
            )

    def in_parts(self, retries: int, patience: Patience) -> bool:
        """Download parallel parts, each with retries; False if the file must be downloaded as a whole."""

        # Each attempt has a stall timeout of its own, so that none counts the pauses between attempts.
        def request(read: Callable[[], Parts]) -> Parts:
            return call_with_retries(partial(self._read_parts, read), retries, patience=patience)

        part = self._path.with_name(f"{self._path.name}-parts")
        try:
            with map_storage_errors(self._url, part):
                if not ranges.download_parts(self._storage, self._file, part, request):
                    return False
            self._check_copy(part)
            commit_file(part, self._path)
        except _StalledPartsError as error:
            _LOG.warning("%s: downloading it as a whole", error)
            return False
        finally:
            part.unlink(missing_ok=True)
        return True

    def end(self) -> None:
        """Remove what showed progress."""
        with suppress(OSError):
            self._marker.unlink()

    def _read_parts(self, read: Callable[[], Parts]) -> Parts:
        with self._attempt():
            try:
                return run_with_timeout(read, self._url, self._timeout)
            except StalledError as error:
                # Progress inside a part is not visible; a download of the whole file shows it.
                raise _StalledPartsError(str(error)) from error

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        with suppress(OSError):  # it is missing at the first attempt
            os.utime(self._marker)
        try:
            yield
        except RETRYABLE_ERRORS:  # a pause may follow
            with suppress(OSError):
                self._marker.touch()
            raise
