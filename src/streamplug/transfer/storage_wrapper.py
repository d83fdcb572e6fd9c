"""Base class of storages that wrap another storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from streamplug.interfaces import Storage
from streamplug.transfer.disk_errors import map_storage_errors
from streamplug.types import Buffer, ObjectInfo

T = TypeVar("T")


class StorageWrapper(Storage):
    """A storage that delegates each operation to another one; subclasses override some."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage.url)
        self._storage = storage

    def _run(self, key: str, operation: Callable[[], T]) -> T:  # noqa: ARG002 - for subclasses
        """Run an operation that reads `key`; subclasses override this to supervise all of them."""
        return operation()

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
