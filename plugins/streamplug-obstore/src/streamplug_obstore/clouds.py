"""Storages for S3, Google Cloud, Azure and HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamplug_fsspec import OptionTypes, Refusal, check_header_values, error_of_code

from streamplug.errors import ConfigError, StorageError
from streamplug.interfaces import public_url
from streamplug.types import Buffer, ObjectInfo
from streamplug_obstore.bucket_region import find_region
from streamplug_obstore.client import obstore_module
from streamplug_obstore.config import (
    ENDPOINT_SETTINGS,
    azure_config,
    gcs_config,
    s3_config,
    s3_endpoint,
    setting_of,
)
from streamplug_obstore.error_mapping import (
    REDIRECT,
    begins_beyond_end,
    ignores_ranges,
    refusal_of,
)
from streamplug_obstore.options import check, exclude, together, transport
from streamplug_obstore.storage import ObstoreStorage, version_of

_ADDRESSING = ("auto", "path", "virtual")


class _Bucket(ObstoreStorage):
    """A storage whose URL names a bucket (for Azure, a container) and a prefix."""

    own: ClassVar[OptionTypes] = {}

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``obstore+scheme://bucket/prefix``, also without ``obstore+``.
            **options: Connection options, described in the README.

        Raises:
            ConfigError: If the URL names no bucket, its prefix has empty, ``.`` or ``..`` parts, or an option
                is unknown or invalid.
        """
        super().__init__(url, **options)
        scheme, _, rest = url.partition("://")
        place, _, prefix = rest.partition("/")
        self._bucket, _, self._host = place.partition("@")
        if not self._bucket:
            scheme = scheme.partition(":")[0]
            raise ConfigError(f"{self.url!r} names no bucket; write {scheme}://bucket/prefix")
        prefix = prefix.rstrip("/")
        if prefix and not {"", ".", ".."}.isdisjoint(prefix.split("/")):
            raise ConfigError(f"{self.url}: obstore takes no names with empty, '.' or '..' parts")
        self._prefix = f"{prefix}/" if prefix else ""
        self._what = f"{scheme} storage"
        self._options = check(self._what, options, self.own)

    @property
    def place(self) -> tuple[str, ...]:
        return self._bucket, self._host

    @property
    def endpoint(self) -> str:
        named = setting_of(self._options.get("config", {}), *ENDPOINT_SETTINGS)
        return public_url(named or self._options.get("endpoint_url", ""))


class ObstoreS3(_Bucket):
    """The objects below ``obstore+s3://bucket/prefix``."""

    ways = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass storage_options={'anon': True} for "
        "a public bucket"
    )
    own: ClassVar[OptionTypes] = {
        "addressing_style": str,
        "anon": bool,
        "endpoint_url": str,
        "key": str,
        "region": str,
        "requester_pays": bool,
        "secret": str,
        "token": str,
    }

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location as for all buckets; `addressing_style` is ``auto``, ``path`` or ``virtual``."""
        super().__init__(url, **options)
        together(self._what, self._options, "key", "secret")
        if "token" in self._options:
            together(self._what, self._options, "key", "secret", "token")
        exclude(self._what, self._options, "anon", "key")
        style = self._options.get("addressing_style", "path")
        if style not in _ADDRESSING:
            raise ConfigError(
                f"{self._what} option addressing_style={style!r}: use {', '.join(_ADDRESSING)}"
            )

    def translate(self, error: Exception, url: str) -> StorageError:
        refusal = refusal_of(error)
        if refusal.code == REDIRECT and not refusal.region:
            refusal = Refusal.of(REDIRECT, "", find_region(self.endpoint, self._bucket))
            return error_of_code(refusal, url) or super().translate(error, url)
        return super().translate(error, url)

    @property
    def endpoint(self) -> str:
        return super().endpoint or public_url(s3_endpoint())

    def make_store(self, stores: Any, retries: int) -> Any:
        paying = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "").split(",")
        pays = self._bucket in (name.strip() for name in paying)
        options = {"requester_pays": pays, **self._options}
        config, credentials = s3_config(self._what, self._bucket, options)
        return stores.S3Store(
            self._bucket,
            config=config,
            credential_provider=credentials,
            **transport(options, retries),
        )


class ObstoreGCS(_Bucket):
    """The objects below ``obstore+gs://bucket/prefix``."""

    ways = (
        "run 'gcloud auth application-default login', set GOOGLE_APPLICATION_CREDENTIALS, or pass "
        "storage_options={'token': …}, or {'anon': True} for a public bucket"
    )
    own: ClassVar[OptionTypes] = {"anon": bool, "endpoint_url": str, "token": (str, Mapping)}

    def __init__(self, url: str, **options: Any) -> None:
        """As for all buckets; `token` is the path of a key file, its content as a dict, or a token."""
        super().__init__(url, **options)
        exclude(self._what, self._options, "anon", "token")

    def make_store(self, stores: Any, retries: int) -> Any:
        options = dict(self._options)
        token = options.pop("token", None)
        if isinstance(token, Mapping):
            options["service_account_key"] = json.dumps(dict(token))
        elif token is not None:
            token = os.path.expanduser(token)  # noqa: PTH111 - an access token is no path
            options["application_credentials" if _is_file(token) else "bearer_token"] = token
        config, credentials = gcs_config(self._what, options)
        client = options.get("client_options", {})
        # Without it, Google decompresses what has a Content-Encoding, and ignores ranges of it.
        headers = {"Accept-Encoding": "gzip", **client.get("default_headers", {})}
        options["client_options"] = {**client, "default_headers": headers}
        return stores.GCSStore(
            self._bucket,
            config=config,
            credential_provider=credentials,
            **transport(options, retries),
        )


class ObstoreAzure(_Bucket):
    """The blobs below ``obstore+az://container/prefix``."""

    ways = (
        "set AZURE_STORAGE_ACCOUNT_KEY, or pass storage_options, such as {'account_key': …}, or "
        "{'anon': True} for a public container"
    )
    own: ClassVar[OptionTypes] = {
        "account_key": str,
        "account_name": str,
        "anon": bool,
        "client_id": str,
        "client_secret": str,
        "endpoint_url": str,
        "sas_token": str,
        "tenant_id": str,
    }

    def __init__(self, url: str, **options: Any) -> None:
        """As for all buckets; the URL may name the account: ``container@account.dfs.core.windows.net``."""
        super().__init__(url, **options)
        exclude(self._what, self._options, "anon", "account_key", "sas_token", "client_id")
        together(self._what, self._options, "tenant_id", "client_id", "client_secret")

    @property
    def endpoint(self) -> str:
        named = setting_of(self._options.get("config", {}), "account_name")
        named = named or self._options.get("account_name") or _named_account()
        account = "" if self._host else named
        named = f"https://{account}.blob.core.windows.net" if account else ""
        return super().endpoint or named

    def make_store(self, stores: Any, retries: int) -> Any:
        options = dict(self._options)
        account, _, domain = self._host.partition(".")
        account = account or os.environ.get("AZURE_ACCOUNT_NAME", "")
        if account and not ("AZURE_STORAGE_ACCOUNT_NAME" in os.environ and not self._host):
            options.setdefault("account_name", account)
        # Clouds other than the public one have other domains.
        domain = domain.replace("dfs.", "blob.", 1)
        if "blob." in domain:
            options.setdefault("endpoint_url", f"https://{options['account_name']}.{domain}")
        if "sas_token" in options:
            options["sas_token"] = options["sas_token"].removeprefix("?")
        config = azure_config(self._what, options)
        return stores.AzureStore(self._bucket, config=config, **transport(options, retries))


class ObstoreHttp(ObstoreStorage):
    """The files below ``obstore+https://host/path``, read-only."""

    ways = "pass storage_options={'headers': {'Authorization': …}}"

    def __init__(self, url: str, **options: Any) -> None:
        """Set the location and its options.

        Args:
            url: ``obstore+https://host/path``, without user name, password and query.
            **options: Connection options, described in the README.

        Raises:
            ConfigError: If the URL has a user name or a query, or an option is unknown or invalid.
        """
        super().__init__(url, **options)
        if "?" in url:
            raise ConfigError(f"{self.url} with a query cannot be read through obstore")
        if public_url(url) != url:
            raise ConfigError(
                f"{self.url}: obstore does not send the user name and the password of a URL; pass "
                "storage_options={'headers': {'Authorization': …}}"
            )
        what = "http storage through obstore"
        self._options = check(what, options, {"headers": Mapping})
        check_header_values(f"{what} option 'headers'", self._options.get("headers"))
        self._serves_ranges: bool | None = None
        self._tells_versions = True

    def make_store(self, stores: Any, retries: int) -> Any:
        how = transport(self._options, retries)
        if "headers" in self._options:
            how["client_options"]["default_headers"] = dict(self._options["headers"])
        return stores.HTTPStore(self._location.rstrip("/"), **how)  # it appends a slash and the key

    def serves_ranges(self, key: str) -> bool:
        if self._serves_ranges is None:
            with self.translated(key):
                try:
                    where, options = self._path(key), {"range": (0, 1)}
                    response = obstore_module().get(self._reading_store(), where, options=options)
                    response.bytes()
                    self._serves_ranges = True
                    self._tells_versions = bool(version_of(response.meta))
                except Exception as error:
                    is_ignored = ignores_ranges(error)
                    if not (is_ignored or begins_beyond_end(error)):  # as in an empty file
                        raise
                    self._serves_ranges = not is_ignored
        return self._serves_ranges

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        return super().read_version(key, ranges, version) if self._tells_versions else ([], "")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        raise StorageError(f"{self.url_of(prefix)}: obstore cannot list files over HTTP")

    def write(self, key: str, data: Buffer) -> None:
        raise self._read_only(key)

    def upload(self, path: Path, key: str) -> None:
        raise self._read_only(key)

    def delete(self, key: str) -> None:
        raise self._read_only(key)

    def _read_only(self, key: str) -> StorageError:
        return StorageError(f"{self.url_of(key)}: storage over HTTP is only for reading")


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # too long for a name, as many tokens are
        return False


def _named_account() -> str:
    # The second is what mosaicml-streaming reads.
    names = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
