"""Storage for Databricks Unity Catalog volumes and DBFS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

from streamplug.errors import NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug.types import Buffer, ObjectInfo
from streamplug_databricks.dbfs import Dbfs
from streamplug_databricks.options import check, folder_of
from streamplug_databricks.volumes import Volumes
from streamplug_databricks.workspace import Workspace, translated

_CONCURRENCY = 8


class DatabricksStorage(Storage):
    """The files below ``dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/path`` or ``dbfs:/path``."""

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/path``, or another path of DBFS.
            **options: Connection options, described in the README.

        Raises:
            ConfigError: If the URL names a part of the path to a volume, or an option is unknown
                or invalid.
        """
        super().__init__(url, **options)
        check(options)
        self._folder = folder_of(url)
        self._workspace = Workspace(options)
        kind = Volumes if self._folder.startswith("/Volumes/") else Dbfs
        self._files: Volumes | Dbfs = kind(self._workspace)

    def read(self, key: str) -> bytes:
        path, url = self._path(key), self.url_of(key)
        with translated(url):
            return self._files.read(url, path)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.read_ranges(key, [(start, stop)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        path, url = self._path(key), self.url_of(key)

        def one(limits: tuple[int, int]) -> bytes:
            return self._files.read(url, path, limits) if limits[1] > limits[0] else b""

        if not ranges:
            return []
        most = self._options.get("max_concurrency") or _CONCURRENCY
        with translated(url), ThreadPoolExecutor(min(len(ranges), most)) as pool:
            return list(pool.map(one, ranges))

    def download(self, key: str, path: Path) -> None:
        remote, url = self._path(key), self.url_of(key)
        with translated(url), path.open("wb") as file:
            for chunk in self._files.chunks(url, remote):
                file.write(chunk)

    def write(self, key: str, data: Buffer) -> None:
        path, url, content = self._path(key), self.url_of(key), bytes(data)
        with translated(url):
            self._files.write(url, path, BytesIO(content), len(content))

    def upload(self, path: Path, key: str) -> None:
        remote, url = self._path(key), self.url_of(key)
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {url}")
        with translated(url), path.open("rb") as file:
            self._files.write(url, remote, file, path.stat().st_size)

    def stat(self, key: str) -> ObjectInfo:
        path, url = self._path(key), self.url_of(key)
        with translated(url):
            return ObjectInfo(key, self._files.size(url, path))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        path, url, start = self._path(folder), self.url_of(folder), len(self._folder) + 1
        with translated(url):
            entries = [ObjectInfo(name[start:], size) for name, size in self._files.walk(url, path)]
        found = sorted(entries, key=lambda o: o.key)
        return (o for o in found if o.key.startswith(prefix))

    def delete(self, key: str) -> None:
        path, url = self._path(key), self.url_of(key)
        with translated(url):
            self._files.delete(url, path)

    def close(self) -> None:
        self._workspace.close()

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise StorageError(f"{self.url}: key {key!r} leads out of the location")
        return f"{self._folder}/{key}" if key else self._folder
