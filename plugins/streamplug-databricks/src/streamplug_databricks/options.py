"""Options and URLs of the Databricks storage."""

from __future__ import annotations

from collections.abc import Mapping
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
