"""Scanning of data files, local or remote, compressed or not."""

from __future__ import annotations

import io
import mmap
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from streamplug.errors import (
    CorruptShardError,
    DataError,
    NotFound,
    PluginError,
    StorageError,
    StreamplugError,
    prefix_errors,
)
from streamplug.interfaces import Compression, Storage
from streamplug.plugin import make
from streamplug.plugin_kit import HEAD_BYTES, describe_misnamed, naming_codec
from streamplug.transfer import (
    TemporaryDirectory,
    call_with_retries,
    map_disk_errors,
    map_storage_errors,
    open_cancellable,
    parts_error,
)
from streamplug.types import Buffer, ObjectInfo
from streamplug_files.format import ScannableFormat
from streamplug_files.listing import DataFile
from streamplug_files.scan_source import ScanResult, ScanSource

MAX_SEQUENTIAL_GAP_BYTES = 1 << 20  # between two reads up to which they count as sequential
MAX_RANGES_PER_REQUEST = 256
MIN_READ_AHEAD_BYTES, MAX_READ_AHEAD_BYTES = 1 << 16, 1 << 23  # doubled while reads are sequential
MAX_EXPANSION, MIN_EXPANSION_BYTES = 2_000, 1 << 26
"""Limits against decompression bombs: maximum ratio, and a size in bytes that is always allowed."""
DISK_CHECK_BYTES = 1 << 24  # bytes written between two checks of the free disk space
MIN_FREE_BYTES, MIN_FREE_DIVISOR = 1 << 30, 20  # bytes to leave free; on a small disk, 1/20 of it


def scan_file(
    format_: ScannableFormat,
    file: DataFile,
    storage: Storage,
    directory: Path | None,
    retries: int,
) -> tuple[ScanResult, int]:
    """Scan a data file, and return the size of the raw file in bytes, too.

    `directory` is that of `storage`, if it is local.
    """
    url = storage.url_of(file.stored.key)
    stored_name = file.stored.key if file.compression else ""
    with (
        prefix_errors(url, DataError),
        _name_content(stored_name, lambda: storage.read_range(stored_name, 0, HEAD_BYTES)),
        _open_source(file, storage, directory, retries, url) as source,
        _name_content(file.raw, lambda: source.read(0, HEAD_BYTES)),
    ):
        return format_.scan(source), source.size


@contextmanager
def _name_content(name: str, read_head: Callable[[], bytes]) -> Iterator[None]:
    """Say in errors of damage what a file is, if its name says otherwise."""
    try:
        yield
    except DataError as error:
        found = ""
        with suppress(StreamplugError):
            found = describe_misnamed(read_head(), name) if name else ""
        if not found or found in str(error):
            raise
        raise CorruptShardError(f"it is {found} ({error})") from error


@contextmanager
def _open_source(
    file: DataFile, storage: Storage, directory: Path | None, retries: int, url: str
) -> Iterator[ScanSource]:
    key, compression = file.stored.key, file.compression
    if directory is not None:
        with map_storage_errors(url):  # not those of a cache file, which the scan writes
            (directory / key).open("rb").close()
    if compression is None and directory is not None:
        with _map_file(directory / key) as data:
            yield _MappedSource(data, storage, key, retries)
        return
    if compression is None and call_with_retries(lambda: storage.serves_ranges(key), retries):
        yield _RangeSource(file.stored.size, storage, key, retries)
        return
    with TemporaryDirectory() as folder, map_disk_errors(folder):
        path = folder / "stored"
        if directory is None:
            call_with_retries(partial(_download, storage, file.stored, path), retries)
        else:
            path = directory / key
        if compression is not None:
            stored, path = path, folder / "raw"
            with prefix_errors(url, PluginError):
                _decompress(stored, path, compression)
        with _map_file(path) as data:
            yield _MappedSource(data, storage, key, retries)


def _download(storage: Storage, stored: ObjectInfo, path: Path) -> None:
    storage.download(stored.key, path)
    if path.stat().st_size != stored.size:
        raise CorruptShardError(
            f"got {path.stat().st_size} bytes of {stored.size}; it was cut short or replaced, write or copy "
            "it again"
        )


def _decompress(stored: Path, path: Path, compression: str) -> None:
    codec: Compression = make("compression", compression)
    max_size = max(stored.stat().st_size * MAX_EXPANSION, MIN_EXPANSION_BYTES)
    with (
        open_cancellable(stored) as source,
        _DiskSparingFile(path) as target,
        naming_codec(codec),
    ):
        codec.decompress_stream(source, target, max_size=max_size)


class _DiskSparingFile(io.FileIO):
    """A file whose writes fail before the disk is full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "wb")
        self._path, self._unchecked_bytes = path, 0

    def write(self, data: Buffer, /) -> int:  # type: ignore[override]  # FileIO says more
        self._unchecked_bytes += len(data)
        if self._unchecked_bytes >= DISK_CHECK_BYTES:
            self._unchecked_bytes = 0
            disk = shutil.disk_usage(self._path.parent)
            if disk.free < min(MIN_FREE_BYTES, disk.total // MIN_FREE_DIVISOR):
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
def _map_file(path: Path) -> Iterator[mmap.mmap | bytes]:
    with map_disk_errors(path), path.open("rb") as stream:
        if not stream.seek(0, 2):
            yield b""
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


class _Source(ScanSource):
    """A file of a storage, whose siblings can be read, too."""

    def __init__(self, size: int, storage: Storage, key: str, retries: int) -> None:
        self.name, self.size = storage.url_of(key), size
        self._storage, self._key, self._retries = storage, key, retries

    def read_sibling(self, name: str) -> bytes | None:
        folder, slash, _ = self._key.rpartition("/")
        key = f"{folder}{slash}{name}"
        try:
            return call_with_retries(lambda: self._storage.read(key), self._retries)
        except NotFound:
            return None


class _MappedSource(_Source):
    """A memory-mapped local file."""

    def __init__(self, data: mmap.mmap | bytes, storage: Storage, key: str, retries: int) -> None:
        super().__init__(len(data), storage, key, retries)
        self._data = data

    def read(self, start: int, stop: int) -> bytes:
        return self._data[start:stop]


class _RangeSource(_Source):
    """A remote file with read-ahead: large where it is read sequentially, small otherwise."""

    def __init__(self, size: int, storage: Storage, key: str, retries: int) -> None:
        super().__init__(size, storage, key, retries)
        self._start, self._data, self._read_ahead = 0, b"", MIN_READ_AHEAD_BYTES

    def read(self, start: int, stop: int) -> bytes:
        stop = min(stop, self.size)
        if start >= stop:  # such as beyond the end of a file that was cut short
            return b""
        at = start - self._start
        if at < 0 or stop > self._start + len(self._data):
            self._fetch(start, stop)
            at = 0
        return self._data[at : at + stop - start]

    def read_blocks(self, starts: Sequence[int], size: int) -> Sequence[bytes]:
        ranges = [(min(start, self.size), min(start + size, self.size)) for start in starts]
        blocks: list[bytes] = []
        for first in range(0, len(ranges), MAX_RANGES_PER_REQUEST):
            some = ranges[first : first + MAX_RANGES_PER_REQUEST]
            blocks += map(bytes, call_with_retries(partial(self._read, some), self._retries))
        return blocks

    def _read(self, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        """Read ranges that are whole; the error of others is worth a retry."""
        blocks = self._storage.read_ranges(self._key, ranges)
        if len(blocks) != len(ranges):
            raise parts_error(self._storage, self._key, len(ranges), len(blocks))
        for (start, stop), block in zip(ranges, blocks):
            if len(block) != stop - start:
                raise CorruptShardError(
                    f"got {len(block)} bytes from {start} on where {stop - start} were asked for; it was cut "
                    "short or replaced, write or copy it again"
                )
        return blocks

    def _fetch(self, start: int, stop: int) -> None:
        gap = start - (self._start + len(self._data))
        is_sequential = -len(self._data) <= gap <= MAX_SEQUENTIAL_GAP_BYTES
        self._read_ahead = (
            min(2 * self._read_ahead, MAX_READ_AHEAD_BYTES)
            if is_sequential
            else MIN_READ_AHEAD_BYTES
        )
        end = min(max(stop, start + self._read_ahead), self.size)
        [data] = call_with_retries(partial(self._read, [(start, end)]), self._retries)
        self._start, self._data = start, bytes(data)
