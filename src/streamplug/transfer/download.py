"""Download of one file: whole or in parallel parts, with retries."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from streamplug.errors import HashMismatchError
from streamplug.interfaces import Storage
from streamplug.transfer import ranges
from streamplug.transfer.disk_errors import map_storage_errors
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
    check_copy: Callable[[Path], None] = lambda _: None,
) -> None:
    """Download a file, in parallel parts if it is large and the storage serves ranges.

    Staging files are beside `path`, with its name as prefix; its directory must exist. One of them changes
    before each pause and each retry, which shows other processes that this one makes progress. `timeout` is
    the stall timeout in seconds. `check_copy` raises CorruptShardError for a damaged copy, which fails the
    attempt.

    Raises:
        CorruptShardError: If far more bytes arrive than the index says.
        OSError: If the local file cannot be written.
    """
    key, url = file.basename, storage.url_of(file.basename)
    marker = path.with_name(f"{path.name}-attempt")

    def attempt(write: Callable[[Path], object]) -> None:
        with suppress(OSError):  # it is missing at the first attempt
            os.utime(marker)
        try:
            download_to_staging_file(
                write, url, path, timeout, check_copy=check_copy, size=file.bytes
            )
        except RETRYABLE_ERRORS:  # a pause may follow
            with suppress(OSError):
                marker.touch()
            raise

    def serves_ranges() -> bool:
        with map_storage_errors(url):
            return call_with_retries(lambda: storage.serves_ranges(key), retries)

    try:
        if file.bytes >= ranges.PARALLEL_DOWNLOAD_BYTES:
            try:
                if run_with_timeout(serves_ranges, url, timeout):
                    attempt(lambda part: ranges.download_parts(storage, file, part, retries))
                    return
            except StalledError as error:
                # Progress inside a part is not visible; a download of the whole file shows it.
                _LOG.warning("%s: downloading it as a whole", error)
            except HashMismatchError as error:
                if not retries:
                    raise
                _LOG.warning("%s: downloading it as a whole", error)
                retries -= 1
        call_with_retries(lambda: attempt(partial(storage.download, key)), retries)
    finally:
        with suppress(OSError):
            marker.unlink()
