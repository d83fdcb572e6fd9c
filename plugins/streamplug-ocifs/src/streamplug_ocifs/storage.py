"""Storage for Oracle Cloud's Object Storage."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import (
    FsspecStorage,
    conditional_reads,
    limit_session,
    one_version,
    read_concurrently,
    read_range_body,
    status_of,
    version_of,
    write_chunks,
)

from streamplug.errors import AccessDenied, ConfigError, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug.plugin_kit import retryable_cause
from streamplug.types import Buffer, ObjectInfo
from streamplug_ocifs.options import check, ocifs_options

_CONCURRENCY = 8
_PART_SIZE = 32 * 2**20
_CHUNK = 2**20
_NO_CREDENTIALS = {
    "ConfigFileNotFound",
    "InvalidConfig",
    "InvalidKeyFilePath",
    "InvalidPrivateKey",
    "MissingPrivateKeyPassphrase",
    "ProfileNotFound",
}
_BROKEN = {
    "CircuitBreakerError",  # raised if the user passes a circuit breaker
    "ChunkedEncodingError",
    "ConnectTimeout",
    "ConnectTimeoutError",
    "ConnectionError",
    "IncompleteRead",
    "MaxRetryError",
    "NewConnectionError",
    "ProtocolError",
    "ReadTimeout",
    "ReadTimeoutError",
    "RequestException",
}


class OciStorage(FsspecStorage):
    """The objects below ``oci://bucket@namespace/prefix``; the README describes the options."""

    limits_requests = True

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``oci://bucket@namespace/prefix``, or ``oci://bucket/prefix`` for a bucket in the
                namespace of the credentials.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no bucket, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        self._bucket, at, _ = urlsplit(url).netloc.partition("@")
        if not self._bucket:
            raise ConfigError(f"{self.url!r} names no bucket; write oci://bucket@namespace/prefix")
        check(options)
        if not at and options.get("namespace"):  # buckets of two namespaces may have one name
            bucket = f"//{self._bucket}"
            self.url = self.url.replace(bucket, f"{bucket}@{options['namespace']}", 1)

    @property
    def endpoint(self) -> str:
        region = self._options.get("region")
        of_region = f"https://objectstorage.{region}.oraclecloud.com" if region else ""
        return public_url(self._options.get("endpoint_url") or of_region)

    def filesystem_options(self) -> Mapping[str, Any]:
        return ocifs_options(self._options)

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from fsspec import get_filesystem_class

        # `url_to_fs` would take "::" in a prefix for a chain of file systems.
        filesystem = get_filesystem_class("oci")(**options)
        limit_session(filesystem.oci_client.base_client.session)
        return filesystem, self._location.partition("://")[2]

    def open_client(self) -> tuple[Any, str]:
        try:
            return super().open_client()
        except FileNotFoundError as error:
            raise AccessDenied(
                f"no usable credentials for {self.url}: {error.filename} does not exist on this machine; "
                "check 'config'"
            ) from None

    def _place(self, key: str) -> dict[str, str]:
        """Return the location of an object as arguments of the client."""
        bucket, namespace, name = self.filesystem().split_path(self.path(key))
        return {"namespace_name": namespace, "bucket_name": bucket, "object_name": name}

    def _oci_client(self) -> Any:
        return self.filesystem().oci_client

    # Unlike ocifs, the client reads without a size request and uploads in parallel.

    def read(self, key: str) -> bytes:
        with self.translated(key):
            return bytes(self._oci_client().get_object(**self._place(key)).data.content)

    def cat_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[Any]:
        def get(limits: tuple[int, int]) -> bytes | Exception:
            try:
                return self._get(path, limits)[0]
            except Exception as error:  # noqa: BLE001 - one range may lie beyond the end
                return error

        return read_concurrently(get, ranges, self._concurrency())

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        with self.translated(key), conditional_reads(self.url_of(key)):
            path = self.path(key)

            def get(limits: tuple[int, int]) -> tuple[bytes, str | None]:
                try:
                    return self._get(path, limits, version)
                except Exception as error:
                    if status_of(error) != 416:  # the range starts beyond the end
                        raise
                    return b"", None

            parts = read_concurrently(get, ranges, self._concurrency())
        return one_version(parts, version, self.url_of(key))

    def _get(self, path: str, limits: tuple[int, int], version: str = "") -> tuple[bytes, str]:
        """Return a range of an object, and the version that was read."""
        bucket, namespace, name = self.filesystem().split_path(path)
        # HTTP ranges include their end.
        condition = {"range": f"bytes={limits[0]}-{limits[1] - 1}"}
        if version:
            condition["if_match"] = version
        response = self._oci_client().get_object(namespace, bucket, name, **condition)
        data = response.data
        chunks = data.raw.stream(_CHUNK, decode_content=False)
        with closing(data):
            sent = data.status_code, response.headers.get("content-range")
            return read_range_body(chunks, *limits, *sent), response.headers.get("etag", "")

    def download(self, key: str, path: Path) -> None:
        with self.translated(key):
            data = self._oci_client().get_object(**self._place(key)).data
            with path.open("wb", buffering=0) as file:
                write_chunks(file, data.raw.stream(_CHUNK, decode_content=False))

    def write(self, key: str, data: Buffer) -> None:
        with self.translated(key):
            self._oci_client().put_object(**self._place(key), put_object_body=bytes(data))

    def put(self, path: Path, target: str) -> None:
        bucket, namespace, name = self.filesystem().split_path(target)
        if path.stat().st_size > self._part_size():
            self._put_parts(path, (namespace, bucket, name))
            return
        with path.open("rb") as file:
            self._oci_client().put_object(namespace, bucket, name, file)

    def _put_parts(self, path: Path, place: tuple[str, str, str]) -> None:
        """Upload a file in parallel parts; if one fails, abort the upload, whose parts cost storage.

        The SDK's own upload leaves the parts, and repeats a failed part with an empty body.
        """
        from oci.object_storage import models

        client, size = self._oci_client(), self._part_size()
        namespace, bucket, name = place
        upload = client.create_multipart_upload(
            namespace, bucket, models.CreateMultipartUploadDetails(object=name)
        ).data.upload_id

        def send(start: int) -> Any:
            with path.open("rb") as file:
                file.seek(start)
                part = file.read(size)
            number = start // size + 1
            md5 = b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode()
            response = client.upload_part(*place, upload, number, part, content_md5=md5)
            return models.CommitMultipartUploadPartDetails(
                part_num=number, etag=response.headers["etag"]
            )

        try:
            with ThreadPoolExecutor(min(3, self._concurrency())) as pool:
                parts = list(pool.map(send, range(0, path.stat().st_size, size)))
            details = models.CommitMultipartUploadDetails(parts_to_commit=parts)
            client.commit_multipart_upload(*place, upload, details)
        except BaseException:
            with suppress(Exception):  # the first error is raised
                client.abort_multipart_upload(*place, upload)
            raise

    def stat(self, key: str) -> ObjectInfo:
        with self.translated(key):
            headers = self._oci_client().head_object(**self._place(key)).headers
            return ObjectInfo(key, int(headers["content-length"]), _version(headers.get("etag")))

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        place = self._place("")
        root = f"{place.pop('object_name')}/".lstrip("/")
        start: str | None = None
        while True:
            prefix = f"{root}{folder}/" if folder else root
            page = self._oci_client().list_objects(
                **place, prefix=prefix, fields="name,size,etag", limit=1000, **_from(start)
            )
            for item in page.data.objects:
                if not item.name.endswith("/"):  # the marker of an empty directory
                    name = item.name[len(root) :]
                    yield ObjectInfo(name, int(item.size), _version(item.etag))
            start = page.data.next_start_with
            if start is None:
                return

    def delete(self, key: str) -> None:
        with self.translated(key):
            try:
                self._oci_client().delete_object(**self._place(key))
            except Exception as error:
                if status_of(error) != 404:
                    raise

    def translate(self, error: Exception, url: str) -> StorageError | None:
        names = {cls.__name__ for cls in type(error).__mro__}
        if status_of(error) is not None:
            return None
        if names & _NO_CREDENTIALS:
            # ocifs raises it for any failure to get those of a resource principal.
            if error.__context__ is not None and retryable_cause(error.__context__):
                return Transient(
                    f"{url}: the service that gives this machine its credentials failed; it may be tried "
                    "again"
                )
            return AccessDenied(
                f"no usable credentials for {url} ({type(error).__name__}); check ~/.oci/config, or "
                "pass storage_options with 'config' and 'profile', or 'iam_type'"
            )
        if any("SSL" in name for name in names) or "CERTIFICATE" in str(error):
            return StorageError(
                f"{url}: no trusted connection to the server: {type(error).__name__}"
            )
        if names & _BROKEN:
            return Transient(f"{url}: {type(error).__name__}; it may be tried again")
        return None

    def _concurrency(self) -> int:
        return int(self._options.get("max_concurrency") or _CONCURRENCY)

    def _part_size(self) -> int:
        return int(self._options.get("part_size") or _PART_SIZE)


def _version(etag: str | None) -> str:
    return version_of({"etag": etag})


def _from(start: str | None) -> dict[str, str]:
    return {} if start is None else {"start": start}
