"""Options of the Azure storage, and their translation for adlfs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
ATTEMPTS = 3
_WHAT = "az storage"

_OWN: OptionTypes = {
    "anon": bool,
    "connect_timeout": (int, float),
    "endpoint_url": str,
    "hedge": bool,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
}
_PASSED_ON: OptionTypes = {
    "account_key": str,
    "account_name": str,
    "blocksize": int,
    "client_id": str,
    "client_secret": str,
    "connection_string": str,
    "credential": object,
    "max_concurrency": int,
    "sas_token": str,
    "tenant_id": str,
}
_WAYS = ("account_key", "sas_token", "credential", "client_id", "connection_string")
_PRINCIPAL = ("tenant_id", "client_id", "client_secret")


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, {**_OWN, **_PASSED_ON})
    check_url(_WHAT, options, "endpoint_url", "https://ACCOUNT.blob.core.windows.net")
    check_positive(
        _WHAT, options, "connect_timeout", "read_timeout", "blocksize", "max_concurrency"
    )
    set_options = {name for name, value in options.items() if value is not None}
    ways = [name for name in _WAYS if name in set_options]
    if len(ways) > 1:
        raise ConfigError(f"{_WHAT} options {ways[0]!r} and {ways[1]!r} exclude each other")
    if options.get("anon") and ways:
        raise ConfigError(f"{_WHAT} options 'anon' and {ways[0]!r} exclude each other")
    if set_options.intersection(_PRINCIPAL) and not set_options.issuperset(_PRINCIPAL):
        raise ConfigError(
            f"{_WHAT} options 'tenant_id', 'client_id' and 'client_secret' go together"
        )


def adlfs_options(options: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return the arguments of the file system for checked options and the environment.

    Args:
        options: Options of the storage.
        host: Host in the URL, such as ``account.dfs.core.windows.net``, or empty.
    """
    account, _, domain = host.partition(".")
    set_options = {name: value for name, value in options.items() if value is not None}
    passed = {name: set_options[name] for name in _PASSED_ON if name in set_options}
    passed["given_account"] = set_options.get("account_name") or account
    passed["account_name"] = passed["given_account"] or _named_account()
    is_anonymous = set_options.get("anon", False)
    has_credentials = is_anonymous or not set_options.keys().isdisjoint(_WAYS)
    # adlfs reads AZURE_STORAGE_ACCOUNT_KEY, and mosaicml-streaming the other one.
    key = _variable("AZURE_ACCOUNT_ACCESS_KEY")
    if key and not has_credentials and not _variable("AZURE_STORAGE_ACCOUNT_KEY"):
        passed["account_key"] = key
    if "anon" in set_options:
        passed["anon"] = set_options["anon"]
    elif not _variable("AZURE_STORAGE_ANON"):
        # The default of older versions of adlfs is True, with which they look for no credentials.
        passed["anon"] = False
    passed["endpoint_url"] = set_options.get("endpoint_url")
    # Clouds other than the public one have other domains.
    domain = domain.replace("dfs.", "blob.", 1)
    if passed["endpoint_url"] is None and "blob." in domain:
        passed["endpoint_url"] = f"https://{passed['account_name']}.{domain}"
    passed["attempts"] = ATTEMPTS
    passed["limits"] = {
        "connection_timeout": set_options.get("connect_timeout", CONNECT_TIMEOUT),
        "read_timeout": set_options.get("read_timeout", READ_TIMEOUT),
    }
    return passed


def server_of(connection_string: str) -> str:
    """Return the URL of the server that a connection string names, without credentials; else empty."""
    pairs = (pair.partition("=") for pair in connection_string.split(";"))
    settings = {name.strip().lower(): value.strip() for name, _, value in pairs}
    account = settings.get("accountname")
    suffix = settings.get("endpointsuffix", "core.windows.net")
    named = f"https://{account}.blob.{suffix}" if account else ""
    return public_url(settings.get("blobendpoint", named)).rstrip("/")


def _named_account() -> str | None:
    # The second is what mosaicml-streaming reads.
    return _variable("AZURE_STORAGE_ACCOUNT_NAME") or _variable("AZURE_ACCOUNT_NAME")


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None
