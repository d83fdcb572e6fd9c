"""The options of S3Storage: what is accepted, and what s3fs is given for it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
# How often botocore itself tries; s3fs tries again on top of that, so it must not be often.
ATTEMPTS = 2
_ADDRESSING = ("auto", "path", "virtual")

_OWN: Mapping[str, type | tuple[type, ...]] = {
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
}
_PASSED_ON: Mapping[str, type | tuple[type, ...]] = {
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
    """Refuse options that have no meaning.

    Raises:
        ConfigError: If a name is unknown, or a value is of the wrong type or does not fit.
    """
    known = {**_OWN, **_PASSED_ON}
    for name, value in options.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(sorted(known))}"
            raise ConfigError(f"s3 storage takes no option {name!r}.{hint}")
        # A bool is an int in Python, but not a number of seconds.
        wrong_bool = isinstance(value, bool) and known[name] is not bool
        if value is not None and (wrong_bool or not isinstance(value, known[name])):
            # The value may be a secret: only its type is told.
            raise ConfigError(
                f"s3 storage option {name!r} must be {_spell(known[name])}, "
                f"not {type(value).__name__}"
            )
    _check_values(options)


def _spell(wanted: type | tuple[type, ...]) -> str:
    if isinstance(wanted, tuple):
        return " or ".join(each.__name__ for each in wanted)
    return "a dict" if wanted is Mapping else wanted.__name__


def _check_values(options: Mapping[str, Any]) -> None:
    style = options.get("addressing_style")
    if style is not None and style not in _ADDRESSING:
        raise ConfigError(
            f"s3 storage option addressing_style={style!r}: use {', '.join(_ADDRESSING)}"
        )
    endpoint = options.get("endpoint_url")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            "s3 storage option 'endpoint_url' must start with http:// or https://, such as "
            "https://ACCOUNT.r2.cloudflarestorage.com"
        )
    for name in ("connect_timeout", "read_timeout", "max_concurrency", "default_block_size"):
        if options.get(name) is not None and options[name] <= 0:
            raise ConfigError(f"s3 storage option {name}={options[name]}: must be positive")
    if (options.get("key") is None) != (options.get("secret") is None):
        raise ConfigError("s3 storage options 'key' and 'secret' go together: give both or none")
    if options.get("anon") and options.get("key") is not None:
        raise ConfigError("s3 storage options 'anon' and 'key' exclude each other")


def s3fs_options(options: Mapping[str, Any], bucket: str) -> dict[str, Any]:
    """Return the arguments of `s3fs.S3FileSystem` for checked options and the environment."""
    given = {name: value for name, value in options.items() if value is not None}
    client = dict(given.get("client_kwargs", {}))
    if "region" in given:
        client["region_name"] = given["region"]
    config = {
        "connect_timeout": given.get("connect_timeout", CONNECT_TIMEOUT),
        "read_timeout": given.get("read_timeout", READ_TIMEOUT),
        "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
        "max_pool_connections": 50,
        **given.get("config_kwargs", {}),
    }
    if "addressing_style" in given:
        config["s3"] = {**config.get("s3", {}), "addressing_style": given["addressing_style"]}
    unchanged = (*_PASSED_ON, "anon", "key", "secret", "token", "profile")
    return {
        **{name: given[name] for name in unchanged if name in given},
        "endpoint_url": given.get("endpoint_url") or os.environ.get("S3_ENDPOINT_URL") or None,
        "requester_pays": given.get("requester_pays", bucket in _paying()),
        "client_kwargs": client,
        "config_kwargs": config,
    }


def _paying() -> set[str]:
    """Return the buckets whose requests the reader pays for, as mosaicml-streaming is told."""
    listed = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "")
    return {bucket.strip() for bucket in listed.split(",")}
