"""Storage for Azure Blob Storage and Data Lake Storage."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from streamplug_fsspec import RETRYABLE_STATUSES, FsspecStorage, lacks_tls, status_of

from streamplug.errors import AccessDenied, ConfigError, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug.types import ObjectInfo
from streamplug_adlfs.options import adlfs_options, check, server_of

_WAYS = (
    "run 'az login', set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or "
    "AZURE_STORAGE_CONNECTION_STRING, or pass storage_options, such as {'anon': True} for a "
    "public container"
)


class AzureStorage(FsspecStorage):
    """The blobs below ``az://container/prefix``; the options are described in the README."""

    asynchronous = True
    can_create = True
    limits_requests = True
    renews_credentials = True

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``az://container/prefix`` or ``abfs://container@account.dfs.core.windows.net/prefix``.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no container, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        place, _, prefix = url.partition("://")[2].partition("/")
        container, _, self._host = place.partition("@")
        if not container:
            raise ConfigError(f"{self.url!r} names no container; write az://container/prefix")
        self._root = f"{container}/{prefix}"
        check(options)

    @property
    def endpoint(self) -> str:
        # The client, too, prefers a connection string.
        connection = self._options.get("connection_string")
        if not connection and (given := self._options.get("endpoint_url")):
            return public_url(given)
        if self._host and not connection:
            return ""
        account = adlfs_options(self._options, self._host)["account_name"]
        if connection or not account:
            return server_of(connection or os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
        return f"https://{account}.blob.core.windows.net"

    def filesystem_options(self) -> Mapping[str, Any]:
        return adlfs_options(self._options, self._host)

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from streamplug_adlfs.filesystem import FileSystem

        return self.share(partial(FileSystem, **options), self._host), self._root

    def part_reader(self) -> Any:
        return self.filesystem().read_part

    def version_reader(self) -> Any:
        return self.filesystem().read_version

    def objects(self, folder: str) -> Iterator[ObjectInfo]:
        filesystem = self.filesystem()
        start = len(self.path("").partition("/")[2])
        start += bool(start)
        for name, size, version in filesystem.blobs(f"{self.path(folder)}/"):
            yield ObjectInfo(name[start:], size, version)

    def translate(self, error: Exception, url: str) -> StorageError | None:
        from azure.core import exceptions as azure

        if isinstance(error, azure.ClientAuthenticationError):
            if status_of(error) in RETRYABLE_STATUSES:  # of the service that gives credentials
                return None
            return AccessDenied(f"no valid credentials for {url}; {_WAYS}")
        if lacks_tls(error):
            return None
        if isinstance(error, ValueError) and "only supported with HTTPS" in str(error):
            return AccessDenied(
                f"no credentials for {url} that may be sent to its endpoint, which is plain http; {_WAYS}"
            )
        if isinstance(
            error,
            (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError),
        ):
            return Transient(f"{url}: {type(error).__name__}; it may be tried again")
        return None
