"""Options and URLs of the HDFS storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from streamplug_fsspec import OptionTypes, check_options, check_positive

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
_WHAT = "hdfs storage"

_KNOWN: OptionTypes = {
    "connect_timeout": (int, float),
    "endpoint_url": (str, list, tuple),
    "kerberos": bool,
    "max_concurrency": int,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "token": str,
    "user": str,
}
# Default HTTP port of name nodes; ports in hdfs:// URLs are those of another protocol.
_PORTS = {"hdfs": ("http", 9870), "webhdfs": ("http", 9870), "swebhdfs": ("https", 9871)}


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    for endpoint in _listed(options.get("endpoint_url") or ()):
        if not str(endpoint).startswith(("http://", "https://")):
            raise ConfigError(
                f"{_WHAT} option 'endpoint_url' must start with http:// or https://, such as "
                "http://namenode.example:9870"
            )
    check_positive(_WHAT, options, "connect_timeout", "read_timeout", "max_concurrency")
    if sum(bool(options.get(name)) for name in ("kerberos", "token", "user")) > 1:
        raise ConfigError(f"{_WHAT} options 'kerberos', 'token' and 'user' exclude each other")


def parse(url: str, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None, str]:
    """Return the name nodes, the user in the URL, and the folder without a trailing slash.

    Raises:
        ConfigError: If neither the URL nor an option names a host.
    """
    scheme, _, rest = url.partition(":")
    # Hadoop, too, takes hdfs:/path for the default cluster.
    place, _, path = rest.removeprefix("//").partition("/")
    user, _, place = place.rpartition("@")
    user = unquote(user.partition(":")[0])
    endpoints = _listed(options.get("endpoint_url") or ())
    if not endpoints and not place:
        raise ConfigError(f"the location names no host; write {scheme}://namenode.example/path")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, ""
    protocol, default = _PORTS[scheme.lower()]
    if scheme.lower() == "hdfs" or not port:
        port = str(default)
    nodes = tuple(endpoint.rstrip("/") for endpoint in endpoints) or (
        f"{protocol}://{host}:{port}",
    )
    folder = path.strip("/")
    return nodes, user or None, f"/{folder}" if folder else ""


def _listed(endpoints: Any) -> tuple[str, ...]:
    return (endpoints,) if isinstance(endpoints, str) else tuple(endpoints)
