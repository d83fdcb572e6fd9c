"""Options and URLs of the Databricks storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ParsingError
from contextlib import suppress
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive

from streamplug.errors import ConfigError
from streamplug.interfaces import public_url

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
_WHAT = "dbfs storage"

_KNOWN: OptionTypes = {
    "auth_type": str,
    "client_id": str,
    "client_secret": str,
    "config_file": str,
    "connect_timeout": (int, float),
    "host": str,
    "max_concurrency": int,
    "profile": str,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "token": str,
}
AUTHENTICATION = (
    "auth_type",
    "client_id",
    "client_secret",
    "config_file",
    "host",
    "profile",
    "token",
)


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    check_positive(_WHAT, options, "connect_timeout", "read_timeout", "max_concurrency")


def named_host(options: Mapping[str, Any]) -> str:
    """Return the URL of the workspace that options, the environment or a profile in them name, else empty."""
    host = options.get("host") or os.environ.get("DATABRICKS_HOST", "")
    profile = options.get("profile") or os.environ.get("DATABRICKS_CONFIG_PROFILE")
    if not host and profile:
        places = options.get("config_file"), os.environ.get("DATABRICKS_CONFIG_FILE")
        path = next(filter(None, places), "~/.databrickscfg")
        profiles = ConfigParser(interpolation=None)
        with suppress(OSError, ValueError, ParsingError):
            profiles.read(os.path.expanduser(path))  # noqa: PTH111 - no error without a home
            host = profiles.get(profile, "host", fallback="")
    return url_of_host(host) if host else ""


def url_of_host(host: str) -> str:
    """Return the URL of a workspace, given its host or URL."""
    host = host.rstrip("/")
    return host if host.startswith(("http://", "https://")) else f"https://{host}"


def folder_of(url: str) -> str:
    """Return the path of a location, such as ``/Volumes/catalog/schema/volume/set``.

    Raises:
        ConfigError: If the path to a volume is incomplete.
    """
    path = "/" + url.partition(":")[2].strip("/")
    parts = path.split("/")[1:]
    if parts[0] == "Volumes" and (len(parts) < 4 or not all(parts[:4])):
        raise ConfigError(
            f"{public_url(url)!r} names no volume; write dbfs:/Volumes/CATALOG/SCHEMA/VOLUME/path"
        )
    return "" if path == "/" else path
