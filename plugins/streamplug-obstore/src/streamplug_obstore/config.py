"""Configuration of obstore's stores, in which the given options win over the environment as a whole.

obstore reads the environment, and replaces single values by given ones: an access key that was given would be
sent with the environment's session token.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import endpoint_of_environment

from streamplug.errors import ConfigError
from streamplug_obstore.options import exclude, together

Credentials = Mapping[str, Any]

_S3_NAMES = {
    "endpoint": "aws_endpoint_url_s3",
    "endpoint_url": "aws_endpoint_url_s3",
    "endpoint_url_s3": "aws_endpoint_url_s3",
    "token": "session_token",
}
_AZURE_NAMES = {
    "access_key": "account_key",
    "authority_id": "tenant_id",
    "bearer_token": "token",
    "master_key": "account_key",
    "sas_token": "sas_key",
}
_GCS_NAMES = {"service_account_path": "service_account"}
_GCS_VARIABLES = {
    "bearer_token": ("GOOGLE_BEARER_TOKEN",),
    "service_account": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"),
    "service_account_key": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
}
"""Variables that obstore uses in place of other credentials, even given ones, by their setting."""

_PREFIXES = re.compile(r"aws_|azure_storage_|azure_|google_")
_AZURE_WAYS = {
    "account_key": "access_key",
    "sas_key": "sas_token",
    "token": "bearer_token",
    "federated_token_file": "workload_identity",
    "client_secret": "client_secret",
}
"""obstore's names of the ways to sign in, by the setting of each."""

ENDPOINT_SETTINGS = ("endpoint", "endpoint_url", "endpoint_url_s3", "base_url")
"""obstore's names of an endpoint, without the prefix of the cloud."""

_ENDPOINTS = ("S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_TRUE = frozenset(("1", "true", "on", "yes", "y"))
_DNS_LABEL = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")


def s3_config(
    what: str, bucket: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Callable[[], Credentials] | None]:
    """Return the configuration of a bucket of S3, and what returns its credentials if they are given.

    Raises:
        ConfigError: If no bucket can be put in front of the endpoint's host, credentials are incomplete, or
            obstore would use those of the environment in place of a given role.
    """
    names = {
        "anon": "skip_signature",
        "key": "access_key_id",
        "region": "region",
        "requester_pays": "request_payer",
        "secret": "secret_access_key",
        "token": "session_token",
    }
    config = _settings(options, names, _S3_NAMES)
    endpoint = options.get("endpoint_url") or s3_endpoint()
    config["virtual_hosted_style_request"] = is_virtual = _is_virtual(
        options.get("addressing_style"), config, bucket, endpoint
    )
    # An endpoint in the user's `config` is complete, as obstore wants it.
    if endpoint and "aws_endpoint_url_s3" not in config:
        endpoint = endpoint.rstrip("/")
        config["aws_endpoint_url_s3"] = (
            _put_in_front(what, bucket, endpoint) if is_virtual else endpoint
        )
    given = [
        name for name in ("access_key_id", "secret_access_key", "session_token") if name in config
    ]
    if not given:
        for name in ("role_arn", "web_identity_token_file"):
            _refuse_stronger(what, config, name, ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
        return config, None
    together(what, config, *({"access_key_id", "secret_access_key"} | set(given)))
    key, secret, token = (
        config.pop(name, None) for name in ("access_key_id", "secret_access_key", "session_token")
    )
    config.setdefault("skip_signature", False)
    credentials = {"access_key_id": key, "secret_access_key": secret, "token": token}
    return config, lambda: {**credentials, "expires_at": None}


def s3_endpoint() -> str:
    """Return the endpoint that the environment names, or an empty string.

    Raises:
        ConfigError: If it is no URL.
    """
    return endpoint_of_environment(*_ENDPOINTS)


def _is_virtual(style: str | None, config: Mapping[str, Any], bucket: str, endpoint: str) -> bool:
    if style == "auto":  # as botocore does
        return not endpoint and _DNS_LABEL.fullmatch(bucket) is not None
    if style is not None:
        return style == "virtual"
    variable = os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "")
    return str(config.get("virtual_hosted_style_request", variable)).lower() in _TRUE


def _put_in_front(what: str, bucket: str, endpoint: str) -> str:
    """Return an endpoint with the bucket in front of its host, which obstore expects to be there."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return endpoint.replace("://", f"://{bucket}.", 1)
    raise ConfigError(
        f"{what} option addressing_style='virtual': the endpoint's host is the address {host}, which no name "
        "of a bucket can be put in front of; use path"
    )


def azure_config(what: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a container of Azure.

    Raises:
        ConfigError: If several credentials are given.
    """
    names = {
        **{
            n: n for n in ("account_key", "account_name", "client_id", "client_secret", "tenant_id")
        },
        "anon": "skip_signature",
        "endpoint_url": "endpoint",
        "sas_token": "sas_key",
    }
    config = _settings(options, names, _AZURE_NAMES)
    exclude(what, config, "skip_signature", *_AZURE_WAYS)
    # obstore reads AZURE_STORAGE_ACCOUNT_KEY, and mosaicml-streaming the other one.
    secret = None
    if not os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"):
        secret = os.environ.get("AZURE_ACCOUNT_ACCESS_KEY")
    if secret and not config.get("skip_signature") and config.keys().isdisjoint(_AZURE_WAYS):
        config["account_key"] = secret
    for setting, way in _AZURE_WAYS.items():
        if setting in config:
            config.setdefault("credential_type", way)
            config.setdefault("skip_signature", False)
    if not config.keys().isdisjoint(("account_name", "endpoint", "credential_type")):
        config.setdefault("use_emulator", False)
    return config


def gcs_config(
    what: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Callable[[], Credentials] | None]:
    """Return the configuration of a bucket of Google, and what returns its credentials if a token is given.

    Raises:
        ConfigError: If obstore would use other credentials, those of the environment, in place of a key file.
    """
    names = {
        **{n: n for n in ("bearer_token", "service_account_key", "application_credentials")},
        "anon": "skip_signature",
        "endpoint_url": "base_url",
    }
    config = _settings(options, names, _GCS_NAMES)
    ways = (*_GCS_VARIABLES, "application_credentials")
    exclude(what, config, "skip_signature", *ways)
    for given in ways:
        if given in config:
            config.setdefault("skip_signature", False)
    if "bearer_token" in config:
        token = config.pop("bearer_token")
        return config, lambda: {"token": token, "expires_at": None}
    for given in ways:
        for name, variables in _GCS_VARIABLES.items():
            if name != given:
                _refuse_stronger(what, config, given, variables)
    return config, None


def setting_of(config: Mapping[str, Any], *names: str) -> str:
    """Return the value of a setting of a user's `config` that has one of several names, else empty."""
    return next((str(v) for name, v in config.items() if _without_prefix(name) in names), "")


def _settings(
    options: Mapping[str, Any], names: Mapping[str, str], aliases: Mapping[str, str]
) -> dict[str, Any]:
    """Return options under obstore's names, updated with the user's `config`, each under one name."""
    given = {theirs: options[ours] for ours, theirs in names.items() if ours in options}
    return given | {_name(n, aliases): value for n, value in options.get("config", {}).items()}


def _name(name: str, aliases: Mapping[str, str]) -> str:
    name = _without_prefix(name)
    return aliases.get(name, name)


def _without_prefix(name: str) -> str:
    return _PREFIXES.sub("", str(name).lower(), count=1)


def _refuse_stronger(
    what: str, config: Mapping[str, Any], given: str, stronger: Iterable[str]
) -> None:
    """Refuse variables of the environment that obstore would use in place of given credentials."""
    variable = next((name for name in stronger if name in os.environ), "")
    if given in config and variable:
        raise ConfigError(
            f"{what}: obstore would use {variable} of the environment in place of the credentials that are "
            f"given ({given}); unset it"
        )
