"""Storage for AIStore buckets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamplug.errors import ConfigError, NotFound, StorageError, StreamplugError, Transient
from streamplug.interfaces import Storage
from streamplug.plugin_kit.error_mapping import status_of, storage_error
from streamplug.types import Buffer, ObjectInfo
from streamplug_aistore.options import check, client

_CONCURRENCY = 8
_CHUNK = 2**20


class AistoreStorage(Storage):
    """The objects below ``ais://bucket/prefix``; the options are described in the README."""

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``ais://bucket/prefix``.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no bucket, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        self._bucket, _, prefix = url.partition("://")[2].partition("/")
        self._prefix = prefix.strip("/")
        if not self._bucket:
            raise ConfigError(f"{self.url!r} names no bucket; write ais://bucket/prefix")
        check(options)
        self._opened: tuple[int, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self._translated(key):
            return bytes(self._object(key).get_reader().read_all())

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self.read_ranges(key, [(start, stop)])[0]

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if not ranges:
            return []
        most = self._options.get("max_concurrency") or _CONCURRENCY
        with self._translated(key), ThreadPoolExecutor(min(len(ranges), most)) as pool:
            return list(pool.map(lambda limits: self._range(key, *limits), ranges))

    def _range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        try:
            # HTTP ranges include their end.
            wanted = f"bytes={start}-{stop - 1}"
            return bytes(self._object(key).get_reader(byte_range=wanted).read_all())
        except Exception as error:
            if status_of(error) == 416:  # the range starts beyond the end
                return b""
            raise

    def download(self, key: str, path: Path) -> None:
        with self._translated(key):
            reader = self._object(key).get_reader(chunk_size=_CHUNK)
            with path.open("wb") as file:
                for chunk in reader:
                    file.write(chunk)

    def stat(self, key: str) -> ObjectInfo:
        with self._translated(key):
            return ObjectInfo(key, int(self._object(key).head().size))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        start = len(self._prefix) + 1 if self._prefix else 0
        with self._translated(prefix):
            wanted = self._name(prefix) if prefix else f"{self._prefix}/".lstrip("/")
            entries = self._open().list_all_objects(prefix=wanted, props="name,size")
            found = [ObjectInfo(e.name[start:], int(e.size)) for e in entries if _is_object(e)]
        return iter(sorted(found, key=lambda o: o.key))

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        with self._translated(key):
            self._object(key).get_writer().put_content(bytes(data))

    def upload(self, path: Path, key: str) -> None:
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {self.url_of(key)}")
        with self._translated(key):
            writer = self._object(key).get_writer()
            if path.stat().st_size:
                writer.put_file(str(path))
            else:  # requests would send an empty file without a length
                writer.put_content(b"")

    def delete(self, key: str) -> None:
        with self._translated(key):
            try:
                self._object(key).delete()
            except Exception as error:
                if status_of(error) != 404:
                    raise

    # -- the cluster ------------------------------------------------------------------

    def close(self) -> None:
        self._opened = None

    def _open(self) -> Any:
        # Connections opened before a fork belong to the parent.
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            provider = self._options.get("provider") or "ais"
            bucket = client(self._options, self.url).bucket(self._bucket, provider=provider)
            self._opened = opened = (os.getpid(), bucket)
        return opened[1]

    def _object(self, key: str) -> Any:
        return self._open().object(self._name(key))

    def _name(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise StorageError(f"{self.url}: key {key!r} leads out of the location")
        return f"{self._prefix}/{key}" if self._prefix else key

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        """Map all exceptions of a block to storage errors about an object."""
        try:
            yield
        except StreamplugError:
            raise
        except Exception as error:  # noqa: BLE001 - clients raise arbitrary exceptions
            raise _ours(error, self.url_of(key)) from None


def _is_object(entry: Any) -> bool:
    return not entry.name.endswith("/")


def _ours(error: Exception, url: str) -> StorageError:
    from requests import exceptions

    name = type(error).__name__
    if isinstance(error, exceptions.SSLError):
        return StorageError(f"{url}: no trusted connection to the server: {name}")
    passing = (exceptions.ConnectionError, exceptions.Timeout, exceptions.ChunkedEncodingError)
    if isinstance(error, passing):
        return Transient(f"{url}: {name}; it may be tried again")
    return storage_error(error, url)
