"""Storage of local files."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO

from streamplug.builtin.staged_file import StagedFile, stage_beside
from streamplug.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError
from streamplug.interfaces import Storage, replaced_error
from streamplug.plugin_kit import (
    STAGING_PREFIX,
    SYSTEM_DIRECTORIES,
    check,
    make_directory,
    storage_error,
)
from streamplug.types import Buffer, ObjectInfo

_COPY_BYTES = 8 << 20
"""Bytes of a copy between two checks for cancellation."""

_NO_LINK_ERRNOS = frozenset((errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
_URL = re.compile(r"(?:(file|local):(?://|(?=/))|[a-z][a-z0-9+.-]*://)", re.IGNORECASE)


class LocalStorage(Storage):
    """The files below a path or a ``file://`` URL.

    A file that was written is on its disk, under its name. Options are for storages of other schemes, which
    may be opened with the same ones: local files have none.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        scheme = _URL.match(url)
        if scheme and not scheme[1]:
            raise ConfigError(f"{self.url}: expected a path or a file:// URL")
        path = Path(url[scheme.end() :] if scheme else url)
        self._root = str(path.absolute()).rstrip("/")

    def path(self, key: str) -> str:
        """Return the path of a file; raise `StorageError` if it is outside the location."""
        self.check_key(key)
        return f"{self._root}/{key}" if key else self._root or "/"

    @contextmanager
    def translated(self, key: str) -> Iterator[None]:
        """Convert the errors of the operating system in the block to storage errors about one file."""
        try:
            yield
        except StorageError:
            raise
        except (OSError, ValueError) as error:  # ValueError: no file can have such a name
            raise storage_error(error, self.url_of(key)) from None

    def read(self, key: str) -> bytes:
        with self.translated(key):
            return Path(self.path(key)).read_bytes()

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.read_ranges(key, [(start, stop)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        with self.translated(key):
            file = os.open(self.path(key), os.O_RDONLY)
            try:
                size = os.fstat(file).st_size
                return [_read_range(file, start, min(stop, size)) for start, stop in ranges]
            finally:
                os.close(file)

    def download(self, key: str, path: Path) -> None:
        with self.translated(key), Path(self.path(key)).open("rb", buffering=0) as source:
            before = os.fstat(source.fileno())
            with path.open("wb") as target:
                _copy(source, target)
            after = os.fstat(source.fileno())
            if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                raise replaced_error(self.url_of(key))

    def write(self, key: str, data: Buffer) -> None:
        with self._replacing(key) as file:
            file.write(data)

    def upload(self, path: Path, key: str) -> None:
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {self.url_of(key)}")
        with self._replacing(key) as file, path.open("rb", buffering=0) as source:
            _copy(source, file)

    @contextmanager
    def _replacing(self, key: str) -> Iterator[BinaryIO]:
        """Yield an empty file, which then replaces a file atomically."""
        with self._staged(key) as (staged, target):
            if target.is_dir():
                raise StorageError(f"{self.url_of(key)}: a directory has this name")
            yield staged.file
            staged.replace(target)

    def create(self, key: str, data: Buffer) -> None:
        with self._staged(key) as (staged, target):
            staged.file.write(data)
            try:
                staged.create(target)
            except FileExistsError:
                raise AlreadyExists(f"{self.url_of(key)} exists") from None
            except OSError as error:
                if error.errno not in _NO_LINK_ERRNOS:
                    raise
                raise StorageError(
                    f"{self.url_of(key)}: its file system has no hard links, which concurrent commits need; "
                    "write to another one, or to the URL of the bucket if it is a mounted one"
                ) from None

    @contextmanager
    def _staged(self, key: str) -> Iterator[tuple[StagedFile, Path]]:
        """Yield a file to write, and the path of the file in its directory, which is made."""
        with self.translated(key):
            target = Path(self.path(key))
            try:
                make_directory(target.parent, durable=True)
            except (FileExistsError, NotADirectoryError):
                raise StorageError(
                    f"{self.url_of(key)}: a file has the name of its directory"
                ) from None
            with stage_beside(target) as staged:
                yield staged, target

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            status = os.stat(self.path(key))  # noqa: PTH116 - a third of pathlib's time
        if S_ISDIR(status.st_mode):
            raise NotFound(f"{self.url_of(key)} does not exist")
        return _info(key, status)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        found = sorted(self._walk(folder), key=lambda info: info.key)
        return (info for info in found if info.key.startswith(prefix))

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield the files below a directory, in any order; none if it does not exist."""
        folders = [folder]
        while folders:
            name = folders.pop()
            try:
                with self.translated(name), os.scandir(self.path(name)) as entries:
                    for entry in entries:
                        key = f"{name}/{entry.name}" if name else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(key)
                        elif not entry.name.startswith(STAGING_PREFIX):
                            with suppress(FileNotFoundError):  # it was removed meanwhile
                                yield _info_of_entry(key, entry)
            except NotFound:
                continue
            except AccessDenied:
                if name == folder or name.rpartition("/")[2] not in SYSTEM_DIRECTORIES:
                    raise

    def delete(self, key: str) -> None:
        if not key:
            raise StorageError(f"{self.url}: an empty key names no object")
        with self.translated(key), suppress(FileNotFoundError, NotADirectoryError):
            path = Path(self.path(key))
            if not path.is_dir():
                path.unlink()


def _read_range(file: int, start: int, stop: int) -> bytes:
    """Return bytes of an open file, which may take several calls: one returns at most 2 GiB."""
    check()
    parts = []
    while start < stop and (part := os.pread(file, stop - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy a file into an empty one; raise `Cancelled` if the consumer stops."""
    copied = 0
    try:
        while sent := os.sendfile(target.fileno(), source.fileno(), copied, _COPY_BYTES):
            copied += sent
            check()
    except OSError:
        if copied:
            raise
        # Outside Linux, sendfile(2) writes to sockets only; some network file systems lack it.
        while data := source.read(_COPY_BYTES):
            check()
            target.write(data)


def _info_of_entry(key: str, entry: os.DirEntry[str]) -> ObjectInfo:
    try:
        # Of a link, size and time are those of its target, which may be rewritten.
        return _info(key, entry.stat())
    except OSError:  # the link leads nowhere
        return ObjectInfo(key, 0, _version(entry.stat(follow_symlinks=False)))


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, status.st_size, _version(status))


def _version(status: os.stat_result) -> str:
    return str(status.st_mtime or status.st_ctime)
