"""Storage for Databricks Unity Catalog volumes and DBFS."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from streamplug_fsspec import ClientStorage, write_chunks

from streamplug.errors import AccessDenied, StorageError
from streamplug.interfaces import public_url
from streamplug.types import Buffer, ObjectInfo
from streamplug_databricks.dbfs import Dbfs
from streamplug_databricks.options import check, folder_of, named_host
from streamplug_databricks.volumes import Volumes
from streamplug_databricks.workspace import NoCredentialsError, Workspace


class DatabricksStorage(ClientStorage):
    """The files below ``dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/path`` or ``dbfs:/path``."""

    limits_requests = True

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

    @property
    def endpoint(self) -> str:
        return public_url(named_host(self._options))

    @property
    def request_place(self) -> str:
        # A workspace counts the requests for all its files.
        return f"dbfs: {self.endpoint}"

    def open_client(self) -> Volumes | Dbfs:
        kind = Volumes if self._folder.startswith("/Volumes/") else Dbfs
        return kind(Workspace(self._options))

    def close_client(self, client: Volumes | Dbfs) -> None:
        client.close()

    def translate(self, error: Exception, url: str) -> StorageError | None:
        if isinstance(error, NoCredentialsError):
            return AccessDenied(
                f"no usable credentials for {url}; set DATABRICKS_HOST and DATABRICKS_TOKEN, name a "
                "profile of ~/.databrickscfg, or pass storage_options with 'host' and 'token'"
            )
        return None

    def read(self, key: str) -> bytes:
        with self.translated(key):
            return bytes(self.client().read(self._path(key)))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self.translated(key):
            return bytes(self.client().read(self._path(key), (start, stop)))

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            chunks = self.client().chunks(self._path(key))
            with path.open("wb", buffering=0) as file:
                write_chunks(file, chunks)

    def write(self, key: str, data: Buffer) -> None:
        content = bytes(data)
        with self.translated(key):
            self.client().write(self._path(key), BytesIO(content), len(content))

    def send_file(self, path: Path, key: str) -> None:
        with path.open("rb") as file:
            self.client().write(self._path(key), file, path.stat().st_size)

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            return ObjectInfo(key, *self.client().stat(self._path(key)))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        start = len(self._folder) + 1
        for name, size, version in self.client().walk(self._path(folder)):
            yield ObjectInfo(name[start:], size, version)

    def delete(self, key: str) -> None:
        with self.translated(key):
            self.client().delete(self._path(key))

    def _path(self, key: str) -> str:
        self.check_key(key)
        return f"{self._folder}/{key}" if key else self._folder
