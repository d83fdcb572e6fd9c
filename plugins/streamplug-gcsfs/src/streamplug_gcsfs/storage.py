"""Storage for Google Cloud Storage buckets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import (
    FsspecStorage,
    bounded_reader,
    error_of_status,
    file_times,
    missing_bucket,
    version_of,
)

from streamplug.errors import AccessDenied, ConfigError, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug.types import ObjectInfo
from streamplug_gcsfs.options import check, credential_files, gcsfs_options

_LISTED = re.compile(r"(?:^|/)b/[^/]+/o$")
_WAYS = (
    "run 'gcloud auth application-default login', set GOOGLE_APPLICATION_CREDENTIALS, or pass "
    "storage_options={'token': …}, or {'anon': True} for a public bucket"
)


class GCSStorage(FsspecStorage):
    """The objects below ``gs://bucket/prefix``; the options are described in the README."""

    asynchronous = True
    can_create = True
    limits_requests = True
    renews_credentials = True

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``gs://bucket/prefix``.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no bucket, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        if not urlsplit(url).netloc:
            raise ConfigError(f"{self.url!r} names no bucket; write gs://bucket/prefix")
        check(options)

    @property
    def endpoint(self) -> str:
        given = self._options.get("endpoint_url")
        return public_url(given or os.environ.get("STORAGE_EMULATOR_HOST", ""))

    def filesystem_options(self) -> Mapping[str, Any]:
        return gcsfs_options(self._options)

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from streamplug_gcsfs.filesystem import FileSystem

        filesystem = self.share(partial(FileSystem, **options), file_times(*credential_files()))
        return filesystem, self._location.partition("://")[2]

    def part_reader(self) -> Any:
        return bounded_reader(super().part_reader())

    def version_reader(self) -> Any:
        request, url = self._coroutine_function("call"), self.filesystem().url

        async def read(path: str, start: int, end: int, version: str) -> tuple[bytes, str]:
            generation = {"ifGenerationMatch": version} if version else {}
            # HTTP ranges include their end.
            limits = {"Range": f"bytes={start}-{end - 1}"}
            headers, data = await request("GET", url(path), headers=limits, **generation)
            return data, headers.get("X-Goog-Generation", "")

        return bounded_reader(read)

    def download(self, key: str, path: Path) -> None:
        from streamplug_gcsfs.filesystem import STORED

        # In one request: the `get_file` of gcsfs 2026.3 and later mixes versions in parallel ones.
        with self.translated(key):
            try:
                self.call("get_file_request", self.path(key), str(path), headers=STORED)
            except FileNotFoundError:
                self.stat(key)  # tells whether the bucket is missing
                raise
            except TypeError as error:
                # Before gcsfs 2026.10, of any answer with an error, whose body it has not read.
                self.stat(key)  # raises the error of the same answer
                raise Transient(f"{self.url_of(key)}: an error of the server; try again") from error

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        # gcsfs lists an empty prefix without an error: only a missing bucket is an error.
        root = f"{self.path('')}/"
        for name, info in self.filesystem().find(self.path(folder), detail=True).items():
            if name.startswith(root) and not name.endswith("/"):
                yield ObjectInfo(name[len(root) :], int(info["size"]), version_of(info))

    def translate(self, error: Exception, url: str) -> StorageError | None:
        from gcsfs.retry import ChecksumError, HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError, TransportError
        from requests.exceptions import RequestException

        # Listing and writing raise this error only if the bucket is missing.
        if isinstance(error, FileNotFoundError) and _LISTED.search(str(error)):
            return missing_bucket(url)
        if getattr(error, "code", None) in (401, "401"):
            return AccessDenied(f"no valid credentials for {url}; {_WAYS}")
        # gcsfs raises it without errno, with its own message.
        if type(error) is OSError and str(error).startswith("Forbidden"):
            return error_of_status(403, url)
        if isinstance(error, (RequestException, ChecksumError, TransportError)) or (
            isinstance(error, GoogleAuthError) and error.retryable
        ):
            return Transient(f"{url}: {type(error).__name__}; it may be tried again")
        if isinstance(error, (GoogleAuthError, NonRetryableError)):
            return AccessDenied(f"the credentials for {url} do not work; {_WAYS}")
        if isinstance(error, (ValueError, HttpError)) and "requester pays" in str(error):
            return AccessDenied(
                f"whoever reads {url} pays for it; pass storage_options={{'requester_pays': True}}, "
                "or the project that pays in place of True"
            )
        return None
