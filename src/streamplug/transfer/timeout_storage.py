"""Storage wrapper with a stall timeout for every read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from streamplug.errors import CorruptShardError, StorageError
from streamplug.interfaces import Storage
from streamplug.transfer.disk_errors import map_disk_errors, map_storage_errors
from streamplug.transfer.download import download_to_staging_file
from streamplug.transfer.stall_timeout import run_with_timeout
from streamplug.transfer.storage_wrapper import StorageWrapper
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Buffer

T = TypeVar("T")

DOWNLOAD_TIMEOUT_SECONDS = 60.0  # default stall timeout

MAX_UNSIZED_BYTES = 64 << 20
"""Maximum size of an object that is read as a whole before its size is asked for."""


class TimeoutStorage(StorageWrapper):
    """A storage whose reads raise `Transient` when no bytes arrive for `timeout` seconds.

    Progress inside a range is not visible: a range must be small enough to arrive within the timeout.
    Concurrent requests that share a slow connection do not time out while any of them completes.
    """

    def __init__(self, storage: Storage, timeout: float) -> None:
        super().__init__(storage)
        self._timeout = timeout
        self._received_bytes = 0

    def read(self, key: str) -> bytes:
        return read_staged(self, key, self.download_sized)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._run_counted(key, lambda: self._storage.read_range(key, start, stop), len)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._run_counted(
            key, lambda: self._storage.read_ranges(key, ranges), lambda parts: sum(map(len, parts))
        )

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return self._run_counted(
            key,
            lambda: self._storage.read_version(key, ranges, version),
            lambda read: sum(map(len, read[0])),
        )

    @property
    def supports_read_many(self) -> bool:
        return self._storage.supports_read_many

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        return self._run_counted(
            " or ".join(sorted({key for key, _, _ in parts})),
            lambda: self._storage.read_many(parts),
            lambda read: sum(len(part) for part in read if not isinstance(part, StorageError)),
        )

    def download(self, key: str, path: Path) -> None:
        self.download_sized(key, path, None)

    def download_sized(self, key: str, path: Path, size: int | None) -> None:
        """Download an object of about this size in bytes; CorruptShardError if it is far larger."""
        write = partial(self._storage.download, key)
        download_to_staging_file(write, self.url_of(key), path, self._timeout, size=size)

    def _run(self, key: str, operation: Callable[[], T]) -> T:
        with map_storage_errors(self.url_of(key)):
            return run_with_timeout(operation, self.url_of(key), self._timeout)

    def _run_counted(self, key: str, work: Callable[[], T], count_bytes: Callable[[T], int]) -> T:
        before = self._received_bytes
        with map_storage_errors(self.url_of(key)):
            result = run_with_timeout(
                work, self.url_of(key), self._timeout, lambda: self._received_bytes - before
            )
        self._received_bytes += count_bytes(result)
        return result


def read_staged(
    storage: Storage, key: str, download: Callable[[str, Path, int | None], None]
) -> bytes:
    """Return an object's bytes by downloading it to a temporary file.

    The growing file shows progress, which tells a slow connection from a stalled one. `download` takes the
    expected size, which is asked for only if an object is large: it is a request.
    """
    with TemporaryDirectory() as folder, map_disk_errors(folder):
        path = folder / "part"
        try:
            download(key, path, MAX_UNSIZED_BYTES)
        except CorruptShardError:
            size = storage.stat(key).size
            if size <= MAX_UNSIZED_BYTES:
                raise
            download(key, path, size)
        return path.read_bytes()
