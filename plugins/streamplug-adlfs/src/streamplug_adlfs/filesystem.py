"""adlfs file system with timeouts, retries and custom endpoints."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from adlfs import AzureBlobFileSystem
from azure.core import MatchConditions
from azure.core.exceptions import ResourceNotFoundError
from azure.core.pipeline.policies import AsyncHTTPPolicy
from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry
from fsspec.asyn import sync
from streamplug_fsspec import (
    BodyPart,
    acquire_request,
    check_content_range,
    note_answer,
    version_of,
)

from streamplug.errors import ConfigError

_PART = 8 << 20
"""Bytes per request; a blob's parts are read one after the other. The client's default first part is four
times as large, and it reads the rest in parallel: on a slow connection, none completes for minutes.
"""

_ASKED = re.compile(r"bytes=([0-9]+)-([0-9]+)\Z")

_SECRETS = ("account_key", "connection_string", "sas_token")


class FileSystem(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs has no types
    """adlfs with timeouts for its client, and a listing that detects a missing container.

    adlfs passes timeouts only to reads and writes, and supports custom endpoints only through connection
    strings.
    """

    def __init__(
        self,
        *,
        endpoint_url: str | None,
        given_account: str | None,
        limits: Mapping[str, float],
        attempts: int,
        **options: Any,
    ) -> None:
        self._endpoint, self._limits, self._attempts = endpoint_url, dict(limits), attempts
        self._given_account = given_account
        self._parts_at_once = options.get("max_concurrency") or 1
        names = (*_SECRETS, "anon", "client_id", "credential")
        self._set_options = {name for name in names if options.get(name)}
        super().__init__(**options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path  # not parsed as a URL: "a#" and "a?" would be the blob "a"

    def split_path(self, path: str, delimiter: str = "/", **_: Any) -> tuple[str, str, None]:
        """Return container and name of a blob, and that it is of no certain version."""
        container, name = [*path.split(delimiter, 1), ""][:2]
        return container, name, None

    def do_connect(self) -> None:
        """Create the client, after adlfs resolved the credentials.

        Raises:
            ConfigError: If no account is set, or the environment's connection string is for another one than
                the URL or the options.
        """
        if self._set_options:
            self._forget_environment()
        # The client's default policy waits 15 seconds and more between attempts.
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
            # Not of a single call: the client forgets those when it tries again.
            "raw_response_hook": _bound_response,
            # After the policy of retries: each attempt counts.
            "_additional_pipeline_policies": [_LimiterPolicy()],
        }
        if self.connection_string is not None:
            self.service_client = BlobServiceClient.from_connection_string(
                self.connection_string, **settings
            )
            if "connection_string" not in self._set_options:
                self._check_place()
            return
        if self._endpoint is None and self.account_name is None:
            raise ConfigError(
                "no storage account is named; write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/…, "
                "pass storage_options={'account_name': …}, or set AZURE_STORAGE_ACCOUNT_NAME"
            )
        url = self._endpoint or f"https://{self.account_name}.blob.core.windows.net"
        self.service_client = BlobServiceClient(url, self._own_credential(), **settings)

    def _check_place(self) -> None:
        """Check that the environment's connection string is for the account and endpoint that were given."""
        given = {"account": self._given_account, "endpoint": self._endpoint}
        client = self.service_client
        account: str = client.account_name or ""
        used = {"account": account, "endpoint": client.url.partition("?")[0]}
        for what, value in given.items():
            if value and used[what] and value.rstrip("/") != used[what].rstrip("/"):
                raise ConfigError(
                    f"AZURE_STORAGE_CONNECTION_STRING is for the {what} {used[what]}, but the URL or the "
                    f"options have {value}; unset the variable, or pass credentials, such as 'account_key'"
                )

    def _forget_environment(self) -> None:
        # adlfs fills missing arguments from the environment, which must not override those passed.
        for name in set(_SECRETS) - self._set_options:
            setattr(self, name, None)
        if "anon" in self._set_options:
            self.credential = self.sync_credential = None
        if "client_id" in self._set_options:
            self.credential, self.sync_credential = self._get_credential_from_service_principal()

    def _own_credential(self) -> Any:
        if self.credential is None and self.account_key is not None:
            return {"account_name": self.account_name, "account_key": self.account_key}
        return self.credential or self.sas_token

    async def _get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        async with self._downloaded(rpath) as blob:
            with open(lpath, "wb") as file:  # noqa: PTH123 - as adlfs does
                await blob.readinto(file)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        limits = {} if end is None else {"offset": start or 0, "length": end - (start or 0)}
        async with self._downloaded(path, **limits) as blob:
            return bytes(await blob.readall())

    @asynccontextmanager
    async def _downloaded(self, path: str, **options: Any) -> AsyncIterator[Any]:
        """Yield a download of a blob as it is stored.

        adlfs would have one with a Content-Encoding decompressed, which its size and ranges are not of.

        Raises:
            FileNotFoundError: If it does not exist.
        """
        container, name, _ = self.split_path(path)
        async with self.service_client.get_blob_client(container, name) as client:
            try:
                yield await client.download_blob(
                    max_concurrency=self._parts_at_once,
                    decompress=False,
                    **options,
                    **self._timeout_kwargs,
                )
            except ResourceNotFoundError as error:
                raise FileNotFoundError(path) from error

    async def read_part(self, path: str, start: int, end: int) -> bytes:
        """Return a range of a blob, and read no more of the response than that."""
        return (await self.read_version(path, start, end, ""))[0]

    async def read_version(
        self, path: str, start: int, end: int, version: str
    ) -> tuple[bytes, str]:
        """Return a range of a blob, of a version if that is not empty, and the version that was read."""
        condition: dict[str, Any] = {}
        if version:
            condition = {"etag": version, "match_condition": MatchConditions.IfNotModified}
        # Of a range in several requests, the client itself reads one version.
        async with self._downloaded(path, offset=start, length=end - start, **condition) as blob:
            return bytes(await blob.readall()), blob.properties.etag or ""

    def blobs(self, path: str) -> list[tuple[str, int, str]]:
        """Return name (without container), size and version of all blobs with a prefix."""
        blobs: list[tuple[str, int, str]] = sync(self.loop, self._blobs, path)
        return blobs

    async def _blobs(self, path: str) -> list[tuple[str, int, str]]:
        container, _, start = path.partition("/")
        async with self.service_client.get_container_client(container) as client:
            listing = client.list_blobs(name_starts_with=start, include=["metadata"])
            # Not the properties themselves: they take kilobytes for each blob.
            return [
                (blob.name, blob.size, version_of({"etag": blob.etag}))
                async for blob in listing
                if not _is_folder(blob)
            ]


class _LimiterPolicy(AsyncHTTPPolicy[Any, Any]):
    """Passes requests through the limiter of their place."""

    async def send(self, request: Any) -> Any:
        await acquire_request()
        response = await self.next.send(request)
        answer = response.http_response
        code = answer.headers.get("x-ms-error-code", "")
        note_answer(answer.status_code, answer.headers, code)
        return response


def _bound_response(response: Any) -> None:
    """Have the body of a response end with the range that was asked for: the client joins whatever arrives.

    Raises:
        BodyError: If the response says that it has another range.
    """
    asked = _ASKED.match(response.http_request.headers.get("x-ms-range", ""))
    answer = response.http_response
    if asked is None or answer.status_code >= 300:
        return
    start, last = int(asked[1]), int(asked[2])
    if sent := answer.headers.get("Content-Range"):
        check_content_range(sent, start)
    body = answer.internal_response
    body.content = _BlobContent(body.content, last + 1 - start)


class _BlobContent:
    """The content of a response, which raises if it is longer than the range that was asked for."""

    def __init__(self, content: Any, max_bytes: int) -> None:
        self._content, self._part = content, BodyPart(max_bytes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, size: int) -> bytes:
        chunk: bytes = await self._content.read(size)
        self._part.add(chunk)
        return chunk


def _is_folder(blob: Any) -> bool:
    """Return whether a blob is a directory marker, as in hierarchical namespaces."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    marked = "true" in (metadata.get("hdi_isfolder"), metadata.get("is_directory"))
    return marked or blob.name.endswith("/")
