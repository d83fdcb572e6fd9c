"""FsspecStorage: a storage over any fsspec file system, the base of most cloud plugins."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.interfaces.storage import Storage
from streamplug.types import Buffer, ObjectInfo

_PASSING = (ConnectionError, TimeoutError, asyncio.TimeoutError, InterruptedError)


class FsspecStorage(Storage):
    """A storage over an fsspec file system.

    A plugin for one cloud subclasses it to translate its own options (`filesystem_options`) and
    its client's exceptions (`translate`).
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._filesystem: Any = None
        self._root = ""
        self._pid = -1

    def __getstate__(self) -> dict[str, Any]:
        # Connections, threads and event loops of a file system belong to the process that made it.
        return {**self.__dict__, "_filesystem": None, "_pid": -1}

    # -- what plugins override ------------------------------------------------

    def filesystem_options(self) -> dict[str, Any]:
        """Return the keyword arguments of the fsspec file system for this storage's options."""
        return dict(self._options)

    def translate(self, error: Exception, url: str) -> StorageError | None:
        """Return our error for one that the client raised, or None to use the general rules."""
        return None

    # -- the file system --------------------------------------------------------

    def filesystem(self) -> Any:
        """Return this process's file system, making it when first asked for."""
        if self._pid != os.getpid():
            from fsspec.core import url_to_fs

            # An instance inherited through fork holds its parent's event loop: never share one.
            options = {**self.filesystem_options(), "skip_instance_cache": True}
            self._filesystem, root = url_to_fs(self._location, **options)
            self._root = str(root).rstrip("/")
            self._pid = os.getpid()
        return self._filesystem

    def path(self, key: str) -> str:
        """Return the file system's own path of an object."""
        self.filesystem()
        return f"{self._root}/{key}" if key else self._root

    def close(self) -> None:
        self._filesystem, self._pid = None, -1

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except Exception as error:
            self._raise(error, self.url_of(key))

    def _raise(self, error: Exception, url: str) -> NoReturn:
        ours = self.translate(error, url) or _general(error, url)
        # `from None`: a client's own text may hold signed URLs or keys.
        raise ours from None

    # -- operations -------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self._errors(key):
            data: bytes = self.filesystem().cat_file(self.path(key))
            return data

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self._errors(key):
            data: bytes = self.filesystem().cat_file(self.path(key), start=start, end=stop)
            return data

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        wanted = [(start, stop) for start, stop in ranges if stop > start]
        with self._errors(key):
            found = iter(
                self.filesystem().cat_ranges(
                    [self.path(key)] * len(wanted),
                    [start for start, _ in wanted],
                    [stop for _, stop in wanted],
                    on_error="raise",
                )
                if wanted
                else ()
            )
            return [bytes(next(found)) if stop > start else b"" for start, stop in ranges]

    def download(self, key: str, path: Path) -> None:
        with self._errors(key):
            filesystem, remote = self.filesystem(), self.path(key)
            # fsspec makes a directory of that name where the object is a bare prefix.
            if filesystem.isdir(remote) and not filesystem.isfile(remote):
                raise NotFound(f"{self.url_of(key)} does not exist")
            filesystem.get_file(remote, str(path))

    def write(self, key: str, data: Buffer) -> None:
        with self._errors(key):
            filesystem, target = self.filesystem(), self.path(key)
            filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            if not _renames(filesystem):
                filesystem.pipe_file(target, bytes(data))
                return
            part = f"{target}.{uuid.uuid4().hex}.tmp"
            filesystem.pipe_file(part, bytes(data))
            filesystem.mv(part, target)

    def upload(self, path: Path, key: str) -> None:
        with self._errors(key):
            filesystem, target = self.filesystem(), self.path(key)
            filesystem.makedirs(target.rpartition("/")[0], exist_ok=True)
            if not _renames(filesystem):
                filesystem.put_file(str(path), target)
                return
            part = f"{target}.{uuid.uuid4().hex}.tmp"
            filesystem.put_file(str(path), part)
            filesystem.mv(part, target)

    def stat(self, key: str) -> ObjectInfo:
        with self._errors(key):
            info = self.filesystem().info(self.path(key))
        if info.get("type") == "directory":
            raise NotFound(f"{self.url_of(key)} does not exist")
        return ObjectInfo(key, int(info["size"] or 0))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        with self._errors(prefix):
            top = self.path(folder)
            try:
                found = self.filesystem().find(top, detail=True)
            except FileNotFoundError:
                found = {}
            skip = len(self._root) + 1 if self._root else 0
            objects = [ObjectInfo(name[skip:], int(info["size"] or 0)) for name, info in found.items()]
        yield from sorted((o for o in objects if o.key.startswith(prefix)), key=lambda o: o.key)

    def delete(self, key: str) -> None:
        with self._errors(key):
            try:
                self.filesystem().rm_file(self.path(key))
            except FileNotFoundError:
                return


def _renames(filesystem: Any) -> bool:
    """Say whether an object is written in place, so that a reader could see a part of it."""
    protocol = filesystem.protocol
    names = (protocol,) if isinstance(protocol, str) else protocol
    return not {"file", "local", "sftp", "ssh", "hdfs", "webhdfs", "smb"}.isdisjoint(names)


def _general(error: Exception, url: str) -> StorageError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)):
        return NotFound(f"{url} does not exist")
    if isinstance(error, PermissionError):
        return AccessDenied(f"no permission for {url}; check the credentials and its access rules")
    if isinstance(error, _PASSING) or type(error).__module__.partition(".")[0] == "aiohttp":
        return Transient(f"{url}: {type(error).__name__}; the connection failed, it may be tried again")
    if isinstance(error, ImportError):
        return StorageError(f"{url}: {error}")
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
    return StorageError(f"{url}: {type(error).__name__} {reason}".rstrip())
