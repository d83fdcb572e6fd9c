"""Options of the S3 storage, and their translation for s3fs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from streamplug_fsspec import (
    OptionTypes,
    check_options,
    check_positive,
    check_url,
    endpoint_of_environment,
)

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
# Attempts of botocore; s3fs retries on top of that, so keep it low.
ATTEMPTS = 2
LARGE = 1 << 26
"""Maximum bytes of an object that is read in one request; the default size of a shard."""

_WHAT = "s3 storage"
_ADDRESSING = ("auto", "path", "virtual")

_OWN: OptionTypes = {
    "endpoint_url": str,
    "profile": str,
    "region": str,
    "key": str,
    "secret": str,
    "token": str,
    "anon": bool,
    "requester_pays": bool,
    "addressing_style": str,
    "connect_timeout": (int, float),
    "read_timeout": (int, float),
    "hedge": bool,
    "rate_limit": (bool, int, float),
}
_PASSED_ON: OptionTypes = {
    "cache_regions": bool,
    "client_kwargs": Mapping,
    "config_kwargs": Mapping,
    "default_block_size": int,
    "fixed_upload_size": bool,
    "max_concurrency": int,
    "s3_additional_kwargs": Mapping,
    "use_ssl": bool,
}


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, {**_OWN, **_PASSED_ON})
    check_url(_WHAT, options, "endpoint_url", "https://ACCOUNT.r2.cloudflarestorage.com")
    check_positive(
        _WHAT, options, "connect_timeout", "read_timeout", "max_concurrency", "default_block_size"
    )
    _check_values(options)


def _check_values(options: Mapping[str, Any]) -> None:
    style = options.get("addressing_style")
    if style is not None and style not in _ADDRESSING:
        raise ConfigError(
            f"s3 storage option addressing_style={style!r}: use {', '.join(_ADDRESSING)}"
        )
    if (options.get("key") is None) != (options.get("secret") is None):
        raise ConfigError("s3 storage options 'key' and 'secret' go together: give both or none")
    if options.get("token") is not None and options.get("key") is None:
        raise ConfigError("s3 storage option 'token' goes with 'key' and 'secret': give all three")
    if options.get("anon") and options.get("key") is not None:
        raise ConfigError("s3 storage options 'anon' and 'key' exclude each other")


def s3fs_options(options: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return the arguments of `s3fs.S3FileSystem` for checked options and the environment."""
    set_options = {name: value for name, value in options.items() if value is not None}
    client = dict(set_options.get("client_kwargs", {}))
    endpoint = set_options.get("endpoint_url") or client.pop("endpoint_url", None)
    if "region" in set_options:
        client["region_name"] = set_options["region"]
    config = {
        "connect_timeout": set_options.get("connect_timeout", CONNECT_TIMEOUT),
        "read_timeout": set_options.get("read_timeout", READ_TIMEOUT),
        "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
        "max_pool_connections": 50,
        **_checksums(endpoint or named_endpoint()),
        **set_options.get("config_kwargs", {}),
    }
    if "addressing_style" in set_options:
        config["s3"] = {**config.get("s3", {}), "addressing_style": set_options["addressing_style"]}
    unchanged = (*_PASSED_ON, "anon", "key", "secret", "token", "profile")
    return {
        **{name: set_options[name] for name in unchanged if name in set_options},
        "default_block_size": set_options.get("default_block_size", LARGE),
        "endpoint_url": endpoint or os.environ.get("S3_ENDPOINT_URL") or None,
        "requester_pays": set_options.get("requester_pays", bucket in _paying()),
        "client_kwargs": client,
        "config_kwargs": config,
    }


def named_endpoint() -> str:
    """Return the endpoint that the environment names, or an empty string.

    Raises:
        ConfigError: If it is no URL.
    """
    return endpoint_of_environment("S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def _checksums(endpoint: str) -> dict[str, str]:
    """Return the checksum settings that S3-compatible stores need to accept uploads."""
    from botocore.config import Config  # type: ignore[import-untyped]  # botocore has no types

    host = urlsplit(endpoint).hostname or "amazonaws.com"
    if host.endswith(("amazonaws.com", "amazonaws.com.cn")):
        return {}
    return {
        name: "when_required"
        for name in ("request_checksum_calculation", "response_checksum_validation")
        # Older botocore has neither these settings nor these checksums.
        if name in Config.OPTION_DEFAULTS and f"AWS_{name.upper()}" not in os.environ
    }


def _paying() -> set[str]:
    """Return the requester-pays buckets from mosaicml-streaming's environment variable."""
    listed = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "")
    return {bucket.strip() for bucket in listed.split(",")}
