"""Options of the Google Cloud storage, and their translation for gcsfs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
_WHAT = "gs storage"
_ACCESS = ("full_control", "read_only", "read_write")
_CONSISTENCY = ("md5", "none", "size")

_OWN: OptionTypes = {
    "anon": bool,
    "connect_timeout": (int, float),
    "hedge": bool,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "token": (str, Mapping),
}
_PASSED_ON: OptionTypes = {
    "access": str,
    "consistency": str,
    "endpoint_url": str,
    "project": str,
    "requester_pays": (bool, str),
    "session_kwargs": Mapping,
}


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, {**_OWN, **_PASSED_ON})
    check_url(_WHAT, options, "endpoint_url", "http://127.0.0.1:4443")
    check_positive(_WHAT, options, "connect_timeout", "read_timeout")
    for name, choices in (("access", _ACCESS), ("consistency", _CONSISTENCY)):
        value = options.get(name)
        if value is not None and value not in choices:
            raise ConfigError(f"{_WHAT} option {name}={value!r}: use {', '.join(choices)}")
    if options.get("anon") and options.get("token") is not None:
        raise ConfigError(f"{_WHAT} options 'anon' and 'token' exclude each other")


def credential_files() -> tuple[str, str]:
    """Return the paths of the key file and of the login of gcloud."""
    folder = os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    return (
        os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""),
        f"{folder}/application_default_credentials.json",
    )


def gcsfs_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `gcsfs.core.GCSFileSystem` for checked options."""
    from aiohttp import ClientTimeout

    set_options = {name: value for name, value in options.items() if value is not None}
    token = set_options.get("token")
    if isinstance(token, Mapping):  # gcsfs tests for dict, not Mapping
        token = dict(token)
    elif token is not None:
        token = os.path.expanduser(token)  # noqa: PTH111 - an access token is no path
    if "endpoint_url" in set_options:  # gcsfs appends a path
        set_options["endpoint_url"] = set_options["endpoint_url"].rstrip("/")
    return {
        **{name: set_options[name] for name in _PASSED_ON if name in set_options},
        "token": "anon" if set_options.get("anon") else token,
        # A stall timeout only, as requests may be large; gcsfs sets no timeout of its own.
        "requests_timeout": ClientTimeout(
            total=None,
            sock_connect=set_options.get("connect_timeout", CONNECT_TIMEOUT),
            sock_read=set_options.get("read_timeout", READ_TIMEOUT),
        ),
    }
