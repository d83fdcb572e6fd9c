"""Storage of local files, memory, and other protocols of fsspec."""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamplug.errors import AlreadyExists, ConfigError, StorageError
from streamplug.plugin_kit.client_storage import staging_path
from streamplug.plugin_kit.file_commit import make_directory, sync_directory, sync_file
from streamplug.plugin_kit.fsspec_storage import FsspecStorage, is_local
from streamplug.types import Buffer

_creating_in_memory = threading.Lock()
_NO_LINK_ERRNOS = frozenset((errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP))
_ONE_SLASH = re.compile(r"(?!file:)([a-z][a-z0-9+.-]*):/(?!/)", re.IGNORECASE)


class AnyFsspec(FsspecStorage):
    """Any URL or path that fsspec can open, such as ``/data``, ``memory://set``, ``sftp://…``.

    Options are passed to the fsspec file system. A file that was written to a local path is on its disk. A
    URL with one slash raises a `ConfigError`, except ``file:/path``.
    """

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        if not self._location.startswith("/"):
            return super().make_filesystem(options)
        from fsspec.implementations.local import LocalFileSystem

        # fsspec would take a path with "::" in it for a chain, and use another directory.
        return LocalFileSystem(**options), self._location

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        # For fsspec, a URL with one slash is a path in the working directory.
        if match := _ONE_SLASH.match(url):
            raise ConfigError(f"{self.url}: write {match[1]}:// with two slashes")

    @property
    def can_create(self) -> bool:  # type: ignore[override]  # it depends on the location
        return self._in_memory or is_local(self.filesystem())

    @property
    def _in_memory(self) -> bool:
        return bool(self.filesystem().protocol == "memory")

    def create(self, key: str, data: Buffer) -> None:
        if not is_local(self.filesystem()):
            with _creating_in_memory:
                return super().create(key, data)
        with self.translated(key):
            target = Path(self.path(key))
            make_directory(target.parent, durable=True)
            staging = Path(staging_path(str(target)))
            try:
                staging.write_bytes(data)
                sync_file(staging)
                _link(staging, target, self.url_of(key))
                sync_directory(target.parent)
            except FileExistsError:
                raise AlreadyExists(f"{self.url_of(key)} exists") from None
            finally:
                staging.unlink(missing_ok=True)

    def put(self, path: Path, target: str) -> None:
        if self._in_memory:
            # fsspec's own upload to memory is not atomic.
            self.filesystem().pipe_file(target, path.read_bytes())
        else:
            super().put(path, target)


def _link(staging: Path, target: Path, url: str) -> None:
    """Give a file its name; raise FileExistsError if that exists, StorageError without hard links."""
    try:
        os.link(staging, target)  # unlike a rename, it never replaces a file
    except OSError as error:
        if error.errno not in _NO_LINK_ERRNOS:
            raise
        raise StorageError(
            f"{url}: its file system has no hard links, which concurrent commits need; write to another "
            "one, or to the URL of the bucket if it is a mounted one"
        ) from None
