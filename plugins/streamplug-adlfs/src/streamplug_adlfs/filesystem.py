"""The file system of adlfs, with a client that does not wait for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adlfs import AzureBlobFileSystem
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry
from fsspec.asyn import sync

from streamplug.errors import ConfigError

_PART = 8 << 20
"""Bytes of a blob that are asked for at once, one part after the other. The client's own first part is four
times as large, and the others come together: on a slow line none of them is there for minutes."""

_SECRETS = ("account_key", "connection_string", "sas_token")


class FileSystem(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs has no types
    """adlfs, with limits for its client, and a listing that tells a missing container.

    adlfs passes limits of time on with reads and writes only, and reaches other servers than Azure's
    through a connection string only.
    """

    def __init__(
        self,
        *,
        endpoint_url: str | None,
        limits: Mapping[str, float],
        attempts: int,
        **options: Any,
    ) -> None:
        self._endpoint, self._limits, self._attempts = endpoint_url, dict(limits), attempts
        self._parts_at_once = options.get("max_concurrency") or 1
        self._given = options.keys() & {*_SECRETS, "anon", "client_id", "credential"}
        super().__init__(**options)

    def do_connect(self) -> None:
        """Make the client; adlfs has found the credentials by now.

        Raises:
            ConfigError: If nothing names an account.
        """
        if self._given:
            self._forget_environment()
        # The client's own policy waits 15 seconds and more between attempts.
        policy = ExponentialRetry(
            initial_backoff=1,
            increment_base=2,
            retry_total=self._attempts - 1,
            random_jitter_range=1,
        )
        settings: dict[str, Any] = {
            **self._limits,
            "retry_policy": policy,
            "max_single_get_size": _PART,
            "max_chunk_get_size": _PART,
        }
        if self.connection_string is not None:
            self.service_client = BlobServiceClient.from_connection_string(
                self.connection_string, **settings
            )
            return
        if self._endpoint is None and self.account_name is None:
            raise ConfigError(
                "no storage account is named; write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/…, "
                "pass storage_options={'account_name': …}, or set AZURE_STORAGE_ACCOUNT_NAME"
            )
        url = self._endpoint or f"https://{self.account_name}.blob.core.windows.net"
        self.service_client = BlobServiceClient(url, self._own_credential(), **settings)

    def _forget_environment(self) -> None:
        # adlfs reads its variables for all that was not passed; what was passed shall win.
        for name in set(_SECRETS) - self._given:
            setattr(self, name, None)
        if "client_id" in self._given:
            self.credential, self.sync_credential = self._get_credential_from_service_principal()

    def _own_credential(self) -> Any:
        if self.credential is None and self.account_key is not None:
            return {"account_name": self.account_name, "account_key": self.account_key}
        return self.credential or self.sas_token

    async def _get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:
        kwargs.setdefault("max_concurrency", self._parts_at_once)
        await super()._get_file(rpath, lpath, **kwargs)

    def blobs(self, path: str) -> list[tuple[str, int]]:
        """Return name (without container) and size of all blobs that begin with a path."""
        found: list[tuple[str, int]] = sync(self.loop, self._blobs, path)
        return found

    async def _blobs(self, path: str) -> list[tuple[str, int]]:
        container, _, start = path.partition("/")
        async with self.service_client.get_container_client(container) as client:
            listing = client.list_blobs(name_starts_with=start, include=["metadata"])
            return [(blob.name, blob.size) async for blob in listing if not _is_folder(blob)]


def _is_folder(blob: Any) -> bool:
    """Say whether a blob stands for a directory: so it is with hierarchical namespaces."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    marked = "true" in (metadata.get("hdi_isfolder"), metadata.get("is_directory"))
    return marked or blob.name.endswith("/")
