"""Storage for Hadoop's file system, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamplug_fsspec import ClientStorage, read_body, write_chunks

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug.plugin_kit import staging_path
from streamplug.types import Buffer, ObjectInfo
from streamplug_hdfs.options import check, parse
from streamplug_hdfs.webhdfs import HdfsError, WebHdfs

_CHUNK_BYTES = 2**20
_MISSING = {"FileNotFoundException", "ParentNotDirectoryException"}
_DENIED = {"AccessControlException", "InvalidToken", "SecurityException", "AuthorizationException"}
_RETRYABLE = {
    "ConnectException",
    "RetriableException",
    "SafeModeException",
    "SocketTimeoutException",
    "StandbyException",
}


class HdfsStorage(ClientStorage):
    """The files below ``hdfs://namenode/path``; the options are described in the README."""

    limits_requests = True

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
        self._nodes, self._user, self._folder = parse(url, options)

    @property
    def endpoint(self) -> str:
        is_named = bool(self._options.get("endpoint_url"))
        return " ".join(map(public_url, self._nodes)) if is_named else ""

    @property
    def request_place(self) -> str:
        return " ".join(self._nodes)

    def open_client(self) -> WebHdfs:
        return WebHdfs(self._nodes, self._user, self._options)

    def close_client(self, client: WebHdfs) -> None:
        client.close()

    def translate(self, error: Exception, url: str) -> StorageError | None:
        if not isinstance(error, HdfsError) or not error.exception:
            return None
        name = error.exception
        if name in _MISSING:
            return NotFound(f"{url} does not exist")
        if name in _DENIED:
            return AccessDenied(f"no permission for {url} ({name}); check the user and its rights")
        if name in _RETRYABLE:
            return Transient(f"{url}: {name}; it may be tried again")
        return StorageError(f"{url}: the server answered {error.status}, {name}")

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with (
            self.translated(key),
            self.client().answer("GET", self._path(key), "OPEN") as response,
        ):
            return bytes(response.content)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self.translated(key):
            try:
                limits = {"offset": start, "length": stop - start}
                with self.client().answer("GET", self._path(key), "OPEN", **limits) as response:
                    return read_body(response.iter_content(_CHUNK_BYTES), stop - start)
            except HdfsError as error:
                if error.unspecific and start >= self.stat(key).size:
                    return b""
                raise

    def download(self, key: str, path: Path) -> None:
        with (
            self.translated(key),
            self.client().answer("GET", self._path(key), "OPEN") as response,
            path.open("wb", buffering=0) as file,
        ):
            write_chunks(file, response.iter_content(_CHUNK_BYTES))

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            status = self._request(key, "GET", "GETFILESTATUS")["FileStatus"]
        if status["type"] != "FILE":
            raise NotFound(f"{self.url_of(key)} does not exist")
        return _info(key, status)

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        folders = [folder]
        while folders:
            top = folders.pop()
            try:
                entries = self._request(top, "GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
            except HdfsError as error:
                if error.exception not in _MISSING and error.status != 404:
                    raise
                continue
            for entry in entries:
                name = entry["pathSuffix"]
                if not name:  # a file's own entry is nameless
                    continue
                key = f"{top}/{name}" if top else name
                if entry["type"] == "DIRECTORY":
                    folders.append(key)
                else:
                    yield _info(key, entry)

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        with self.translated(key):
            self._put(key, bytes(data))

    def send_file(self, path: Path, key: str) -> None:
        with path.open("rb") as file:
            # requests would send an empty file without a length.
            self._put(key, file if path.stat().st_size else b"")

    def _put(self, key: str, data: Any) -> None:
        """Write a staging file, and rename it atomically to the object."""
        cluster, target = self.client(), self._path(key)
        staging = staging_path(target)
        try:
            with cluster.answer("PUT", staging, "CREATE", data, overwrite="true"):
                pass
            if not self._rename(staging, target):
                self._replace(key, staging)
        except BaseException:
            with suppress(Exception), cluster.answer("DELETE", staging, "DELETE"):
                pass
            raise

    def _rename(self, source: str, target: str) -> bool:
        """Rename a file; return False if a gateway (HttpFS) refuses, as it does if the target exists."""
        renaming = {"destination": target, "renameoptions": "OVERWRITE"}
        with self.client().answer("PUT", source, "RENAME", **renaming) as response:
            content = response.content
        try:
            return not content or json.loads(content) != {"boolean": False}
        except ValueError:
            return True

    def _replace(self, key: str, staging: str) -> None:
        """Replace an object where a rename does not: move it aside, and back if anything fails."""
        target = self._path(key)
        old, is_aside = staging_path(target), False
        try:
            is_aside = self._rename(target, old)
            if not (is_aside and self._rename(staging, target)):
                raise Transient(
                    f"{self.url_of(key)}: it could not be replaced; it may be tried again"
                )
        except BaseException as error:
            try:
                # Gateways also refuse to move back what was never moved aside.
                is_lost = not self._rename(old, target) and is_aside
            except Exception:  # noqa: BLE001 - clients raise anything
                is_lost = True
            if is_lost and isinstance(error, Exception):
                name = old.rpartition("/")[2]
                raise Transient(
                    f"{self.url_of(key)}: it could not be replaced, and its old content may be in "
                    f"{name} beside it; it may be tried again"
                ) from None
            raise
        with suppress(Exception), self.client().answer("DELETE", old, "DELETE"):
            pass

    def delete(self, key: str) -> None:
        with suppress(NotFound), self.translated(key):
            self.stat(key)  # raises NotFound for folders, which must not be deleted
            self._request(key, "DELETE", "DELETE")

    # -- the cluster ------------------------------------------------------------------

    def _request(self, key: str, method: str, operation: str) -> dict[str, Any]:
        with self.client().answer(method, self._path(key), operation) as response:
            content: dict[str, Any] = json.loads(read_body(response.iter_content(_CHUNK_BYTES)))
            return content

    def _path(self, key: str) -> str:
        self.check_key(key)
        return f"{self._folder}/{key}" if key else self._folder


def _info(key: str, status: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(key, int(status["length"]), str(status.get("modificationTime", "")))
