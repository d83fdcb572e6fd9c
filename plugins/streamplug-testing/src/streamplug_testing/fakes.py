"""Fakes: storages and encodings with latency, failures or counts, and a callback that collects events."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from streamplug.errors import StorageError, Transient
from streamplug.interfaces import Callback, Encoding, Event, GatherBuffer, Storage
from streamplug.types import Buffer, ColumnValues, Int64, ObjectInfo, World

T = TypeVar("T")


class _Wrapper(Storage):
    """Forwards every operation to another storage, through `_around`."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner.url)
        self.inner = inner
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        return call()

    def read(self, key: str) -> bytes:
        return self._around("read", key, lambda: self.inner.read(key))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._around("read_range", key, lambda: self.inner.read_range(key, start, stop))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._around("read_ranges", key, lambda: self.inner.read_ranges(key, ranges))

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return self._around(
            "read_version", key, lambda: self.inner.read_version(key, ranges, version)
        )

    @property
    def supports_read_many(self) -> bool:
        return self.inner.supports_read_many

    @property
    def parts_per_call(self) -> int:
        return self.inner.parts_per_call

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        return self._around("read_many", parts[0][0], lambda: self.inner.read_many(parts))

    def serves_ranges(self, key: str) -> bool:
        return self.inner.serves_ranges(key)

    def download(self, key: str, path: Path) -> None:
        self._around("download", key, lambda: self.inner.download(key, path))

    def write(self, key: str, data: Buffer) -> None:
        self._around("write", key, lambda: self.inner.write(key, data))

    def create(self, key: str, data: Buffer) -> None:
        self._around("create", key, lambda: self.inner.create(key, data))

    def upload(self, path: Path, key: str) -> None:
        self._around("upload", key, lambda: self.inner.upload(path, key))

    def stat(self, key: str) -> ObjectInfo:
        return self._around("stat", key, lambda: self.inner.stat(key))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._around("list", prefix, lambda: self.inner.list(prefix))

    def delete(self, key: str) -> None:
        self._around("delete", key, lambda: self.inner.delete(key))

    def exists(self, key: str) -> bool:
        return self._around("exists", key, lambda: self.inner.exists(key))

    def close(self) -> None:
        self.inner.close()


class LatencyStorage(_Wrapper):
    """A storage with a latency per operation, as over a slow network."""

    def __init__(self, inner: Storage, seconds: float) -> None:
        """Wrap a storage.

        Args:
            inner: The storage.
            seconds: Latency of each operation; ranges that are read together wait once.
        """
        super().__init__(inner)
        self.seconds = seconds

    def _around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        time.sleep(self.seconds)
        return call()


class FlakyStorage(_Wrapper):
    """A storage in which some operations fail before they start."""

    def __init__(
        self,
        inner: Storage,
        *,
        fail_every: int = 0,
        fail: Callable[[str, str], bool] | None = None,
        error: type[StorageError] = Transient,
    ) -> None:
        """Wrap a storage.

        Args:
            inner: The storage.
            fail_every: Fail the n-th, 2n-th, … operation; 0 for none.
            fail: Returns whether an operation fails, given its name and key.
            error: The error type to raise.
        """
        super().__init__(inner)
        self.fail_every = fail_every
        self.fail = fail
        self.error = error
        self.operations = 0

    def _around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.operations += 1
            turn = self.fail_every > 0 and self.operations % self.fail_every == 0
        if turn or (self.fail is not None and self.fail(operation, key)):
            raise self.error(f"{self.url_of(key)}: {operation} was made to fail")
        return call()


class CountingStorage(_Wrapper):
    """A storage that counts operations, including those that fail.

    Attributes:
        counts: Calls by operation.
        keys: Calls by operation and key.
        bytes_read: Bytes returned by reads and downloads.
        bytes_written: Bytes passed to writes and uploads.
    """

    def __init__(self, inner: Storage) -> None:
        """Wrap a storage."""
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self.keys: Counter[tuple[str, str]] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0

    def _around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        with self._lock:
            self.counts[operation] += 1
            self.keys[operation, key] += 1
        return call()

    def read(self, key: str) -> bytes:
        return self._count_bytes(super().read(key))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._count_bytes(super().read_range(key, start, stop))

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._count_bytes(bytes(part)) for part in super().read_ranges(key, ranges)]

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        parts, version = super().read_version(key, ranges, version)
        return [self._count_bytes(bytes(part)) for part in parts], version

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        parts_read = super().read_many(parts)
        return [
            part if isinstance(part, StorageError) else self._count_bytes(bytes(part))
            for part in parts_read
        ]

    def download(self, key: str, path: Path) -> None:
        super().download(key, path)
        with self._lock:
            self.bytes_read += path.stat().st_size

    def write(self, key: str, data: Buffer) -> None:
        super().write(key, data)
        with self._lock:
            self.bytes_written += memoryview(data).nbytes

    def upload(self, path: Path, key: str) -> None:
        super().upload(path, key)
        with self._lock:
            self.bytes_written += path.stat().st_size

    def _count_bytes(self, data: bytes) -> bytes:
        with self._lock:
            self.bytes_read += len(data)
        return data


class FailingInts(Encoding):
    """Decodes ints as another encoding stores them, but raises for some."""

    def __init__(self, stored: Encoding, failing: Container[int]) -> None:
        self.stored, self.failing, self.size = stored, failing, stored.size

    def encode(self, value: Any) -> bytes:
        return self.stored.encode(value)

    def decode(self, data: memoryview) -> Any:
        value = self.stored.decode(data)
        self._check(value)
        return value

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        values = self.stored.decode_batch(buffer, starts, sizes)
        for value in values:
            self._check(int(value))
        return values

    def _check(self, value: int) -> None:
        if value in self.failing:
            raise RuntimeError(f"{value} is not to be read")


class Noted(Callback):
    """A callback that collects events.

    Attributes:
        events: The events of the kind, in order.
    """

    def __init__(self, kind: type = object) -> None:
        self.events: list[Any] = []
        self._kind = kind

    def on_event(self, event: Event, world: World) -> None:
        if isinstance(event, self._kind):
            self.events.append(event)
