"""Storage for Hadoop's file system, over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamplug.errors import NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug.types import Buffer, ObjectInfo
from streamplug_hdfs.options import check, parse
from streamplug_hdfs.webhdfs import OutOfRange, WebHdfs, translated

_PART = ".streamplug-"
"""Name prefix of staging files, which are not listed as objects."""

_CONCURRENCY = 8
_CHUNK = 2**20


class HdfsStorage(Storage):
    """The files below ``hdfs://namenode/path``; the options are described in the README."""

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``hdfs://namenode/path``, ``webhdfs://namenode:port/path`` or, over HTTPS,
                ``swebhdfs://namenode:port/path``.
            **options: Connection options.

        Raises:
            ConfigError: If nothing names a host, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        check(options)
        nodes, user, self._folder = parse(url, options)
        self._cluster = WebHdfs(nodes, user, options)

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        try:
            return self._read(key, {})
        except OutOfRange:
            raise _refused(self.url_of(key)) from None

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        try:
            return self._read(key, {"offset": start, "length": stop - start})
        except OutOfRange:
            if start >= self.stat(key).size:
                return b""
            raise _refused(self.url_of(key)) from None

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if not ranges:
            return []
        most = self._options.get("max_concurrency") or _CONCURRENCY
        with ThreadPoolExecutor(min(len(ranges), most)) as pool:
            return list(pool.map(lambda limits: self.read_range(key, *limits), ranges))

    def _read(self, key: str, limits: dict[str, int]) -> bytes:
        url, path = self.url_of(key), self._path(key)
        with self._cluster.answer(url, "GET", path, "OPEN", **limits) as response:
            return bytes(response.content)

    def download(self, key: str, path: Path) -> None:
        url, remote = self.url_of(key), self._path(key)
        try:
            with (
                self._cluster.answer(url, "GET", remote, "OPEN") as response,
                path.open("wb") as file,
            ):
                for chunk in response.iter_content(_CHUNK):
                    file.write(chunk)
        except OutOfRange:
            raise _refused(url) from None

    def stat(self, key: str) -> ObjectInfo:
        found = self._asked(key, "GET", "GETFILESTATUS")["FileStatus"]
        if found["type"] != "FILE":
            raise NotFound(f"{self.url_of(key)} does not exist")
        return ObjectInfo(key, int(found["length"]))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        found = sorted(self._walk(folder), key=lambda o: o.key)
        return (o for o in found if o.key.startswith(prefix))

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        folders = [folder]
        while folders:
            top = folders.pop()
            try:
                entries = self._asked(top, "GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
            except NotFound:
                continue
            for entry in entries:
                name = entry["pathSuffix"]
                if not name or name.startswith(_PART):  # a file's own entry is nameless
                    continue
                key = f"{top}/{name}" if top else name
                if entry["type"] == "DIRECTORY":
                    folders.append(key)
                else:
                    yield ObjectInfo(key, int(entry["length"]))

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        self._put(key, bytes(data))

    def upload(self, path: Path, key: str) -> None:
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {self.url_of(key)}")
        with path.open("rb") as file:
            # requests would send an empty file without a length.
            self._put(key, file if path.stat().st_size else b"")

    def _put(self, key: str, data: Any) -> None:
        """Write a staging file, and rename it atomically to the object."""
        target, url = self._path(key), self.url_of(key)
        part = f"{target.rpartition('/')[0]}/{_PART}{uuid.uuid4().hex}"
        try:
            with self._cluster.answer(url, "PUT", part, "CREATE", data, overwrite="true"):
                pass
            renaming = {"destination": target, "renameoptions": "OVERWRITE"}
            with self._cluster.answer(url, "PUT", part, "RENAME", **renaming):
                pass
        except BaseException as error:
            with (
                suppress(StorageError, OutOfRange),
                self._cluster.answer(url, "DELETE", part, "DELETE"),
            ):
                pass
            if isinstance(error, OutOfRange):
                raise _refused(url) from None
            raise

    def delete(self, key: str) -> None:
        with suppress(NotFound):
            self.stat(key)  # raises NotFound for folders, which must not be deleted
            self._asked(key, "DELETE", "DELETE")

    # -- the cluster ------------------------------------------------------------------

    def close(self) -> None:
        self._cluster.close()

    def _asked(self, key: str, method: str, operation: str) -> dict[str, Any]:
        url, path = self.url_of(key), self._path(key)
        try:
            with translated(url), self._cluster.answer(url, method, path, operation) as response:
                found: dict[str, Any] = response.json()
                return found
        except OutOfRange:
            raise _refused(url) from None

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise StorageError(f"{self.url}: key {key!r} leads out of the location")
        return f"{self._folder}/{key}" if key else self._folder


def _refused(url: str) -> StorageError:
    return StorageError(f"{url}: the server answered 403, IOException")
