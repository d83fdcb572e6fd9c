"""Scanning of data files, local or remote, compressed or not."""

from __future__ import annotations

import io
import mmap
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamplug.errors import CorruptShardError, DataError, NotFound, StorageError
from streamplug.interfaces import Compression, ScannableFormat, ScanResult, ScanSource, Storage
from streamplug.plugin.registry import make, needed_by
from streamplug.scan.listing import DataFile
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.ranges import open_cancellable
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug.types import Buffer

_SKIPPED = 1 << 20  # bytes between two reads up to which they count as sequential
_AT_ONCE = 256  # ranges per request
_LEAST, _MOST = 1 << 16, 1 << 23  # bytes of a read-ahead, doubled while reads are sequential
_EXPANSION, _EXPANSION_LEAST = 2_000, 1 << 26
"""Limits against decompression bombs: maximum ratio, and a size in bytes that is always allowed."""
_GLANCE = 1 << 24  # bytes written between two checks of the free disk space
_SPARE, _SPARE_SHARE = 1 << 30, 20  # bytes to leave free; on a small disk, 1/20 of it


@dataclass(frozen=True, slots=True)
class Looked:
    """Scan result of a data file, and the size of the raw file in bytes."""

    scanned: ScanResult
    size: int


def scan_file(
    format_: ScannableFormat, found: DataFile, storage: Storage, near: Path | None, retries: int
) -> Looked:
    """Scan a data file; `near` is the local directory of `storage`, if it is local."""
    url = storage.url_of(found.stored.key)
    try:
        with _opened(found, storage, near, retries, url) as file:
            return Looked(format_.scan(file), file.size)
    except DataError as error:
        raise type(error)(f"{url}: {error}") from error


@contextmanager
def _opened(
    found: DataFile, storage: Storage, near: Path | None, retries: int, url: str
) -> Iterator[ScanSource]:
    name, size = found.stored.key, found.stored.size
    folder_of = _Folder(storage, name.rpartition("/")[0], retries)
    if found.compression is None and near is not None:
        with _mapped(near / name, url, folder_of) as file:
            yield file
        return
    if found.compression is None and call_with_retries(
        lambda: storage.serves_ranges(name), retries
    ):
        yield _Far(storage, name, url, size, folder_of)
        return
    with TemporaryDirectory() as folder, map_disk_errors(folder):
        path = folder / "stored"
        if near is None:
            call_with_retries(lambda: storage.download(name, path), retries)
        else:
            path = near / name
        if found.compression is not None:
            stored, path = path, folder / "raw"
            with needed_by(url):
                _unpack(stored, path, found.compression)
        with _mapped(path, url, folder_of) as file:
            yield file


def _unpack(stored: Path, path: Path, compression: str) -> None:
    codec: Compression = make("compression", compression)
    most = max(stored.stat().st_size * _EXPANSION, _EXPANSION_LEAST)
    with open_cancellable(stored) as source, _Sparing(path) as target:
        codec.decompress_stream(source, target, max_size=most)


class _Sparing(io.FileIO):
    """A file whose writes fail before the disk is full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self._path, self._unseen = path, 0

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]  # FileIO says more
        self._unseen += len(data)
        if self._unseen >= _GLANCE:
            self._unseen = 0
            disk = shutil.disk_usage(self._path.parent)
            if disk.free < min(_SPARE, disk.total // _SPARE_SHARE):
                raise StorageError(
                    f"{self._path.parent} has only {disk.free} bytes left, after {self.tell()} were "
                    "taken by what a compressed file holds; is the file what it should be? Else make "
                    "room, or set TMPDIR"
                )
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += super().write(view[written:])
        return written


@contextmanager
def _mapped(path: Path, name: str, folder: _Folder) -> Iterator[ScanSource]:
    with map_disk_errors(path), path.open("rb") as stream:
        if not stream.seek(0, 2):
            yield _Near(b"", name, folder)
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as map_:
            yield _Near(map_, name, folder)


class _Folder:
    def __init__(self, storage: Storage, name: str, retries: int) -> None:
        self._storage, self._name, self.retries = storage, name, retries

    def read(self, name: str) -> bytes | None:
        key = f"{self._name}/{name}" if self._name else name
        try:
            return call_with_retries(lambda: self._storage.read(key), self.retries)
        except NotFound:
            return None


class _Near(ScanSource):
    """A memory-mapped local file."""

    def __init__(self, map_: mmap.mmap | bytes, name: str, folder: _Folder) -> None:
        self.name, self.size = name, len(map_)
        self._map, self._folder = map_, folder

    def read_sibling(self, name: str) -> bytes | None:
        return self._folder.read(name)

    def read(self, start: int, stop: int) -> bytes:
        return self._map[start:stop]


class _Far(ScanSource):
    """A remote file with read-ahead: large where it is read sequentially, small otherwise."""

    def __init__(self, storage: Storage, key: str, name: str, size: int, folder: _Folder) -> None:
        self.name, self.size = name, size
        self._storage, self._key, self._retries = storage, key, folder.retries
        self._folder = folder
        self._start, self._data, self._piece = 0, b"", _LEAST

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        at = start - self._start
        if at < 0 or stop > self._start + len(self._data):
            self._fetch(start, stop)
            at = 0
        return self._data[at : at + stop - start]

    def read_blocks(self, starts: Sequence[int], size: int) -> Sequence[bytes]:
        ranges = [(start, min(start + size, self.size)) for start in starts]
        found: list[bytes] = []
        for first in range(0, len(ranges), _AT_ONCE):
            found += self._read_ranges(ranges[first : first + _AT_ONCE])
        return found

    def _read_ranges(self, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        read = self._storage.read_ranges
        return map(bytes, call_with_retries(lambda: read(self._key, ranges), self._retries))

    def read_sibling(self, name: str) -> bytes | None:
        return self._folder.read(name)

    def _fetch(self, start: int, stop: int) -> None:
        gap = start - (self._start + len(self._data))
        through = -len(self._data) <= gap <= _SKIPPED
        self._piece = min(2 * self._piece, _MOST) if through else _LEAST
        end = min(max(stop, start + self._piece), self.size)
        data = call_with_retries(
            lambda: self._storage.read_range(self._key, start, end), self._retries
        )
        if len(data) != end - start:
            raise CorruptShardError(f"got {len(data)} bytes from {start} on of {end - start}")
        self._start, self._data = start, data
