"""Storage for Amazon S3 and compatible object stores."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import (
    NO_TLS_TEXT,
    FsspecStorage,
    conditional_reads,
    file_times,
    lacks_tls,
    refusal_of,
)

from streamplug.errors import AccessDenied, ConfigError, StorageError, Transient
from streamplug.interfaces import public_url
from streamplug_s3fs.options import check, named_endpoint, s3fs_options
from streamplug_s3fs.session import credential_files, new_session, serves_credentials

_DENIED = {
    "AccountProblem",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
}


class S3Storage(FsspecStorage):
    """The objects below ``s3://bucket/prefix``; the options are described in the README."""

    asynchronous = True
    can_create = True
    limits_requests = True
    renews_credentials = True

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``s3://bucket/prefix``.
            **options: Connection options.

        Raises:
            ConfigError: If the URL names no bucket, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        self._bucket = urlsplit(url).netloc
        if not self._bucket:
            raise ConfigError(f"{self.url!r} names no bucket; write s3://bucket/prefix")
        check(options)

    @property
    def endpoint(self) -> str:
        given = self._options.get("endpoint_url")
        client = self._options.get("client_kwargs") or {}
        return public_url(given or client.get("endpoint_url") or named_endpoint())

    def filesystem_options(self) -> Mapping[str, Any]:
        return s3fs_options(self._options, self._bucket)

    def make_filesystem(self, options: Mapping[str, Any]) -> tuple[Any, str]:
        from streamplug_s3fs.filesystem import StreamingFileSystem

        def make() -> StreamingFileSystem:
            client_options = dict(options)
            session = new_session(client_options.pop("profile", None))
            return StreamingFileSystem(session=session, **client_options)

        key = options["requester_pays"], file_times(*credential_files())
        return self.share(make, key), self._location.partition("://")[2]

    def read(self, key: str) -> bytes:
        with self.translated(key):
            cat_file = self.filesystem().cat_file
            # One GET: s3fs 2026.3 and later first request the size to read in parts.
            parts = "max_concurrency" in signature(cat_file).parameters
            return bytes(cat_file(self.path(key), **({"max_concurrency": 1} if parts else {})))

    def part_reader(self) -> Any:
        return self.filesystem().read_part

    def version_reader(self) -> Any:
        return self.filesystem().read_version

    def download(self, key: str, path: Path) -> None:
        with self.translated(key), conditional_reads(self.url_of(key)):
            self.store(partial(self.filesystem().stream_object, self.path(key)), path)

    def translate(self, error: Exception, url: str) -> StorageError | None:
        from botocore import exceptions as boto  # type: ignore[import-untyped]  # botocore has no types

        if self._may_get_credentials(error):
            return Transient(
                f"{url}: the service that gives this machine its credentials failed; it may be tried again"
            )
        if reason := _lacks_credentials(error):
            return AccessDenied(f"no credentials for {url}{reason}")
        if reason := _what_is_wrong(error):
            return StorageError(f"{url}: {reason}")
        if isinstance(error, (boto.EndpointConnectionError, boto.ConnectTimeoutError)):
            return Transient(
                f"{url}: {type(error).__name__}: the server cannot be reached; check endpoint_url= and "
                "the region"
            )
        if isinstance(
            error,
            (
                boto.HTTPClientError,
                boto.ConnectionError,
                boto.IncompleteReadError,
                boto.FlexibleChecksumError,
            ),
        ):
            return Transient(f"{url}: {type(error).__name__}; it may be tried again")
        code = refusal_of(error).code
        if code in _DENIED:
            return AccessDenied(
                f"no permission for {url} ({code}); check the credentials, the region and endpoint_url="
            )
        return None

    def _may_get_credentials(self, error: Exception) -> bool:
        """Return whether credentials are missing only for now."""
        from botocore import exceptions as boto

        client = self._client
        if client is None or not isinstance(error, boto.NoCredentialsError):
            return isinstance(error, boto.CredentialRetrievalError)
        if not serves_credentials(client[0].session):
            return False
        self.renew_client()  # it would sign nothing ever
        return True


def _lacks_credentials(error: Exception) -> str:
    """Return what is wrong with the credentials of this machine, or an empty string."""
    from botocore import exceptions as boto

    if isinstance(error, (boto.NoCredentialsError, boto.PartialCredentialsError)):
        return (
            "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, name a profile, or pass "
            "storage_options={'anon': True} for a public bucket"
        )
    if isinstance(error, boto.ProfileNotFound):
        return f": the AWS profile {error.kwargs.get('profile')!r} is unknown"
    if isinstance(error, FileNotFoundError) and error.filename:  # errors about objects have none
        return (
            f": {error.filename} does not exist on this machine; check what AWS_WEB_IDENTITY_TOKEN_FILE or "
            "the profile names"
        )
    return ""


def _what_is_wrong(error: Exception) -> str:
    """Return what is wrong with the trusted certificates or the endpoint, or an empty string."""
    from botocore import exceptions as boto

    if isinstance(error, boto.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "the server's certificate is not trusted; name its issuer's in AWS_CA_BUNDLE"
    if isinstance(error, boto.HTTPClientError) and isinstance(
        error.kwargs.get("error"), FileNotFoundError
    ):
        return "the file of certificates that AWS_CA_BUNDLE or 'verify' names does not exist"
    if lacks_tls(error):
        return NO_TLS_TEXT
    if isinstance(error, ValueError) and "Invalid endpoint" in str(error):
        return "the AWS configuration has an endpoint_url that is no URL; write https://host:port"
    return ""
