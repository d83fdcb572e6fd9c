"""Storage for AIStore buckets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from streamplug_fsspec import (
    MAX_CONCURRENT_READS,
    ClientStorage,
    limit_session,
    limiting,
    read_concurrently,
    read_range_body,
    status_of,
    write_chunks,
)

from streamplug.errors import ConfigError, StorageError
from streamplug.interfaces import public_url
from streamplug.types import Buffer, ObjectInfo
from streamplug_aistore.get_batch import MAX_PARTS, GetBatch
from streamplug_aistore.options import aistore_client, check

_CHUNK_BYTES = 2**20
_PROPERTIES = "name,size,checksum"


class AistoreStorage(ClientStorage):
    """The objects below ``ais://bucket/prefix``; the options are described in the README."""

    limits_requests = True

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
        self._prefix = prefix.rstrip("/")
        if not self._bucket:
            raise ConfigError(f"{self.url!r} names no bucket; write ais://bucket/prefix")
        if self._prefix and "" in self._prefix.split("/"):
            raise ConfigError(f"{self.url}: AIStore takes no names with empty parts")
        check(options)
        self._provider = options.get("provider") or "ais"
        # It does not fetch the objects of another cloud that the cluster has not cached.
        enabled = options.get("get_batch")
        enabled = self._provider == "ais" if enabled is None else enabled
        self._get_batch = GetBatch(self.url, enabled=enabled)

    @property
    def endpoint(self) -> str:
        named = self._options.get("endpoint_url") or os.environ.get("AIS_ENDPOINT", "")
        # Buckets of two providers may have one name.
        of_provider = "" if self._provider == "ais" else f"?provider={self._provider}"
        return public_url(named) + of_provider

    def open_client(self) -> Any:
        """Return the bucket."""
        client = aistore_client(self._options, self.url)
        bucket = client.bucket(self._bucket, provider=self._provider)
        limit_session(bucket.client.session_manager.session)
        return bucket

    # -- reading --------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self.translated(key):
            return bytes(self._object(key).get_reader().read_all())

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self.translated(key):
            try:
                # HTTP ranges include their end.
                reader = self._object(key).get_reader(
                    chunk_size=_CHUNK_BYTES, byte_range=f"bytes={start}-{stop - 1}"
                )
                with closing(reader.raw()) as body:
                    sent = body.status, body.headers.get("Content-Range")
                    chunks = body.stream(_CHUNK_BYTES, decode_content=False)
                    return read_range_body(chunks, start, stop, *sent)
            except Exception as error:
                if status_of(error) == 416:  # the range starts beyond the end
                    return b""
                raise

    @property
    def supports_read_many(self) -> bool:
        return self._get_batch.is_enabled

    @property
    def parts_per_call(self) -> int:
        return MAX_PARTS

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        with self.translated(parts[0][0]):
            bucket = self.client()
        named = [(self._name(key), start, stop) for key, start, stop in parts]
        with limiting(self.rate_limiter):
            batch = self._get_batch.read(bucket, named)
        missing = [part for part, data in zip(parts, batch) if data is None]
        limit = self._options.get("max_concurrency") or MAX_CONCURRENT_READS
        read = iter(read_concurrently(self._read_part, missing, limit))
        return [next(read) if data is None else data for data in batch]

    def _read_part(self, part: tuple[str, int, int]) -> Buffer | StorageError:
        try:
            return self.read_range(*part)
        except StorageError as error:
            return error

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            reader = self._object(key).get_reader(chunk_size=_CHUNK_BYTES)
            with path.open("wb", buffering=0) as file:
                write_chunks(file, reader)

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            found = self._object(key).head(props=_PROPERTIES)
            return ObjectInfo(key, int(found.size), self._version(found.checksum_value))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        start = len(self._prefix) + 1 if self._prefix else 0
        prefix = f"{self._name(folder)}/".lstrip("/")
        for entry in self.client().list_all_objects(prefix=prefix, props=_PROPERTIES):
            if not entry.name.endswith("/"):
                version = self._version(entry.checksum)
                yield ObjectInfo(entry.name[start:], int(entry.size), version)

    def _version(self, checksum: str) -> str:
        # In a bucket of another cloud, it changes when the cluster caches the object.
        return checksum if self._provider == "ais" else ""

    # -- writing --------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        with self.translated(key):
            self._object(key).get_writer().put_content(bytes(data))

    def send_file(self, path: Path, key: str) -> None:
        writer = self._object(key).get_writer()
        if path.stat().st_size:
            writer.put_file(str(path))
        else:  # requests would send an empty file without a length
            writer.put_content(b"")

    def delete(self, key: str) -> None:
        with self.translated(key):
            try:
                self._object(key).delete()
            except Exception as error:
                if status_of(error) != 404:
                    raise

    def _object(self, key: str) -> Any:
        return self.client().object(self._name(key))

    def _name(self, key: str) -> str:
        self.check_key(key)
        return "/".join(part for part in (self._prefix, key) if part)
