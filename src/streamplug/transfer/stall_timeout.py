"""Stall timeouts: of requests, of downloads to a file, and of all reads of a storage."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from streamplug.errors import (
    CorruptShardError,
    PluginError,
    StorageError,
    Transient,
    class_name,
)
from streamplug.interfaces import Storage
from streamplug.plugin_kit import (
    OversizeError,
    Scope,
    abandoned,
    check,
    commit_file,
    current,
    ending,
    inside,
)
from streamplug.transfer.disk_errors import map_disk_errors, map_storage_errors
from streamplug.transfer.observer import current as current_task
from streamplug.transfer.observer import task_context
from streamplug.transfer.pool import Job, run_on_thread
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Buffer, ObjectInfo

T = TypeVar("T")
_POLL_SECONDS = 1.0
TIMEOUT_ADVICE = ", or raise download_timeout="
"""End of the message of a `StalledError`."""


_OVERSIZE_BYTES = 1 << 20
"""Bytes beyond twice the size in the index at which a download ends; smaller files are verified whole."""
DOWNLOAD_TIMEOUT_SECONDS = 60.0  # default stall timeout
MAX_UNSIZED_BYTES = 64 << 20
"""Maximum size of an object that is read as a whole before its size is asked for."""


class StalledError(Transient):
    """No bytes arrived for the stall timeout."""


def run_with_timeout(
    work: Callable[[], T],
    url: str,
    timeout: float,
    count_bytes: Callable[[], int] = lambda: 0,
    max_bytes: int | None = None,
) -> T:
    """Return the result of `work`, which runs on another thread with a stall timeout in seconds.

    `count_bytes` returns how many have arrived; without it, the whole call must finish within the timeout.
    `max_bytes` is their maximum; None is unlimited.

    Raises:
        StalledError: If no bytes arrive for `timeout` seconds.
        OversizeError: If more than `max_bytes` arrive.
        StorageError: If the parent process is gone.
    """
    scope, task = Scope(), current_task()
    scope.max_bytes = max_bytes

    def work_in_scope() -> T:
        with inside(scope), task_context(task):
            return work()

    job = Job(work_in_scope)
    with ending(scope):
        try:
            run_on_thread(job)
        except RuntimeError as error:  # threads may become available: retry
            raise Transient(
                f"{url}: {error}; raise the limit of processes (ulimit -u) or of memory"
            ) from error
        _wait(job, url, timeout, count_bytes, max_bytes)
    return job.take()


def bytes_of(path: Path) -> int:
    """Return the size of a file and of a client's partial files, whose names start with its name."""
    total = 0
    for part in path.parent.glob(f"{glob.escape(path.name)}*"):
        with suppress(FileNotFoundError):
            total += part.stat().st_size
    return total


def _wait(
    job: Job[T],
    url: str,
    timeout: float,
    count_bytes: Callable[[], int],
    max_bytes: int | None,
) -> None:
    poll = min(_POLL_SECONDS, timeout / 4)
    size, stalled_seconds, last = 0, 0.0, time.monotonic()
    while not job.wait(poll):
        check()
        if abandoned():
            raise StorageError(f"{url}: the parent process has ended")
        new_size, now = count_bytes(), time.monotonic()
        # Time in which this process was suspended does not count.
        stalled_seconds = 0.0 if new_size != size else stalled_seconds + min(now - last, 2 * poll)
        size, last = new_size, now
        if max_bytes is not None and size > max_bytes:
            raise OversizeError(f"more than {max_bytes} bytes")
        if stalled_seconds >= timeout:
            raise StalledError(
                f"{url}: nothing arrived for {timeout:g} s, after {size} bytes; check the network"
                f"{TIMEOUT_ADVICE}"
            )


def download_to_staging_file(
    write: Callable[[Path], object],
    url: str,
    path: Path,
    timeout: float,
    *,
    check_copy: Callable[[Path], None] = lambda _: None,
    size: int | None = None,
) -> None:
    """Call `write` with a staging file and a stall timeout; check the file, and rename it to `path`.

    `size` is the expected one in bytes; CorruptShardError is raised as soon as it is far exceeded.
    """
    # Twice, as a client may copy a partial file of its own to the staging file.
    max_bytes = None if size is None else 2 * size + _OVERSIZE_BYTES
    # A unique name, as an abandoned attempt may continue to write.
    part = path.with_name(f"{path.name}-{token_hex(4)}")

    def write_part() -> None:
        try:
            write(part)
        finally:
            scope = current()
            if scope is not None and scope.stopped:  # abandoned: the caller's cleanup has run
                part.unlink(missing_ok=True)

    try:
        with map_storage_errors(url, part):
            run_with_timeout(write_part, url, timeout, lambda: bytes_of(part), max_bytes)
        if not part.exists():
            raise PluginError(f"{url}: its storage wrote no file, and raised no error")
        check_copy(part)
        commit_file(part, path)
    except OversizeError as error:
        raise CorruptShardError(
            f"{url} has more than {max_bytes} bytes where {size} were expected; it was replaced, write or "
            "copy it again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


class StorageWrapper(Storage):
    """A storage that delegates each operation to another one; subclasses override some."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.url)
        self._storage = storage

    def _run(self, key: str, operation: Callable[[], T]) -> T:  # noqa: ARG002 - for subclasses
        """Run an operation that reads `key`; subclasses override this to supervise all of them."""
        return operation()

    @property
    def endpoint(self) -> str:
        return self._storage.endpoint

    def url_of(self, key: str) -> str:
        return self._storage.url_of(key)

    def read(self, key: str) -> bytes:
        return self._run(key, lambda: self._storage.read(key))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._run(key, lambda: self._storage.read_range(key, start, stop))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._run(key, lambda: self._storage.read_ranges(key, ranges))

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return self._run(key, lambda: self._storage.read_version(key, ranges, version))

    def serves_ranges(self, key: str) -> bool:
        return self._run(key, lambda: self._storage.serves_ranges(key))

    def download(self, key: str, path: Path) -> None:
        self._run(key, lambda: self._storage.download(key, path))

    def stat(self, key: str) -> ObjectInfo:
        return self._run(key, lambda: self._storage.stat(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with map_storage_errors(self.url_of(prefix)):
            yield from self._storage.list(prefix)

    def write(self, key: str, data: Buffer) -> None:
        self._storage.write(key, data)

    def upload(self, path: Path, key: str) -> None:
        self._storage.upload(path, key)

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def close(self) -> None:
        self._storage.close()


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
        return self._run_counted(
            key, lambda: self._storage.read_range(key, start, stop), self._size
        )

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._run_counted(
            key,
            lambda: self._storage.read_ranges(key, ranges),
            lambda parts: sum(map(self._size, parts)),
        )

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return self._run_counted(
            key,
            lambda: self._storage.read_version(key, ranges, version),
            lambda read: sum(map(self._size, read[0])),
        )

    @property
    def supports_read_many(self) -> bool:
        return self._storage.supports_read_many

    @property
    def parts_per_call(self) -> int:
        return self._storage.parts_per_call

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        return self._run_counted(
            " or ".join(sorted({key for key, _, _ in parts})),
            lambda: self._storage.read_many(parts),
            lambda read: sum(self._size(p) for p in read if not isinstance(p, StorageError)),
        )

    def download(self, key: str, path: Path) -> None:
        self.download_sized(key, path, None)

    def download_sized(self, key: str, path: Path, size: int | None) -> None:
        """Download an object of about this size in bytes; CorruptShardError if it is far larger."""
        write = partial(self._storage.download, key)
        download_to_staging_file(write, self.url_of(key), path, self._timeout, size=size)

    def _size(self, part: object) -> int:
        """Return the bytes of a part that the storage returned."""
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise PluginError(
                f"{self.url}: {class_name(type(self._storage))} returned {type(part).__name__} for a "
                "range; expected bytes"
            )
        return len(part)

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
