"""A storage that waits for an answer, but not for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from streamplug.errors import StorageError
from streamplug.interfaces import Storage
from streamplug.transfer.disk_errors import local_errors
from streamplug.transfer.download import attempt
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.transfer.watchdog import unless_stalled
from streamplug.types import Buffer, ObjectInfo

T = TypeVar("T")


def patient(storage: Storage, timeout: float) -> Storage:
    """Return a storage of which reading fails as `Transient` when nothing arrives for some seconds.

    How much of a range has come is not seen before all of it is there: one must be small enough to arrive
    in that time. Of several that share a slow line none is given up while others arrive.
    """
    return _Patient(storage, timeout)


class _Patient(Storage):
    def __init__(self, storage: Storage, timeout: float) -> None:
        super().__init__(storage.url)
        self._storage, self._timeout = storage, timeout
        self._arrived = 0

    def url_of(self, key: str) -> str:
        return self._storage.url_of(key)

    def read(self, key: str) -> bytes:
        # In a file, a long object that comes slowly is told from one that does not come.
        with TemporaryDirectory() as folder, local_errors(folder):
            self.download(key, folder / "part")
            return (folder / "part").read_bytes()

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._arriving(key, lambda: self._storage.read_range(key, start, stop), len)

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        return self._arriving(
            key, lambda: self._storage.read_ranges(key, ranges), lambda parts: sum(map(len, parts))
        )

    @property
    def supports_read_many(self) -> bool:
        return self._storage.supports_read_many

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        return self._arriving(
            " or ".join(sorted({key for key, _, _ in parts})),
            lambda: self._storage.read_many(parts),
            lambda found: sum(len(each) for each in found if not isinstance(each, StorageError)),
        )

    def _arriving(self, key: str, work: Callable[[], T], size: Callable[[T], int]) -> T:
        before = self._arrived
        found = unless_stalled(
            work, self.url_of(key), self._timeout, lambda: self._arrived - before
        )
        self._arrived += size(found)
        return found

    def serves_ranges(self, key: str) -> bool:
        return unless_stalled(
            lambda: self._storage.serves_ranges(key), self.url_of(key), self._timeout
        )

    def download(self, key: str, path: Path) -> None:
        def whole(part: Path) -> bool:
            self._storage.download(key, part)
            return True

        attempt(whole, self.url_of(key), path, self._timeout)

    def stat(self, key: str) -> ObjectInfo:
        return unless_stalled(lambda: self._storage.stat(key), self.url_of(key), self._timeout)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._storage.list(prefix)

    def write(self, key: str, data: Buffer) -> None:
        self._storage.write(key, data)

    def upload(self, path: Path, key: str) -> None:
        self._storage.upload(path, key)

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def close(self) -> None:
        self._storage.close()
