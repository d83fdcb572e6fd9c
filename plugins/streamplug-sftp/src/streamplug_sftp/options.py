"""Options and URLs of the SFTP storage, and their translation for asyncssh."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streamplug_fsspec import OptionTypes, check_options, check_positive

from streamplug.errors import AccessDenied, ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 20.0
_WHAT = "sftp storage"

_KNOWN: OptionTypes = {
    "agent": bool,
    "config": (str, bool),
    "connect_timeout": (int, float),
    "key_file": str,
    "known_hosts": (str, bool),
    "passphrase": str,
    "password": str,
    "port": int,
    "read_timeout": (int, float),
    "username": str,
}


@dataclass(frozen=True)
class Server:
    """Server and folder of a URL.

    Attributes:
        host: Name or address.
        port: Port; None is that of the SSH configuration, or 22.
        username: User name; None is that of the SSH configuration, or of this machine.
        password: Not part of the repr.
        folder: Path on the server, without a trailing slash; relative to the home directory unless it
            begins with one.
    """

    host: str
    port: int | None
    username: str | None
    password: str | None = field(repr=False)
    folder: str


def parse(url: str) -> Server:
    """Parse a URL such as ``sftp://user@host:22/path``.

    Raises:
        ConfigError: If the URL has no host, or an invalid port.
    """
    place, _, path = url.partition("://")[2].partition("/")
    user, at, host = place.rpartition("@")
    name, colon, password = user.partition(":")
    port = ""
    if host.startswith("["):  # [::1]:22
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
    elif ":" in host:
        host, _, port = host.partition(":")
    if not host:
        raise ConfigError("the location names no host; write sftp://user@host/path")
    if port and not (port.isascii() and port.isdigit()):
        raise ConfigError(  # not shown, as it may be a password with a slash in it
            "the port is no number; write sftp://user@host:22/path, and %2F for a slash in a password"
        )
    # The notation of curl and others for paths in the home directory.
    folder = path[2:] if path == "~" or path.startswith("~/") else f"/{path}"
    return Server(
        host,
        int(port) if port else None,
        unquote(name) if at and name else None,
        unquote(password) if colon else None,
        folder.rstrip("/") or ("/" if folder.startswith("/") else "."),
    )


def check(options: Mapping[str, Any]) -> None:
    """Check names, types and values of options.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(_WHAT, options, _KNOWN)
    check_positive(_WHAT, options, "connect_timeout", "read_timeout", "port")
    for name in ("config", "known_hosts"):
        if options.get(name) is True:
            raise ConfigError(f"{_WHAT} option {name!r} is a file's name or False")


def connection_options(server: Server, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `asyncssh.connect` for checked options and the environment.

    Raises:
        AccessDenied: If the key cannot be read.
    """
    set_options = {name: value for name, value in options.items() if value is not None}
    quiet = set_options.get("read_timeout", READ_TIMEOUT)
    connect: dict[str, Any] = {
        "host": server.host,
        "connect_timeout": set_options.get("connect_timeout", CONNECT_TIMEOUT),
        "login_timeout": set_options.get("connect_timeout", CONNECT_TIMEOUT),
        "keepalive_interval": quiet / 2,
        "keepalive_count_max": 2,
    }
    named = {
        "port": set_options.get("port", server.port),
        "username": set_options.get("username", server.username),
        "password": set_options.get("password", server.password),
        "passphrase": set_options.get("passphrase"),  # of the standard keys and those of `config`
        "known_hosts": set_options.get("known_hosts")
        or os.environ.get("COMPOSER_SFTP_KNOWN_HOSTS_FILE"),
        "config": set_options.get("config") or None,
    }
    connect.update({name: value for name, value in named.items() if value is not None})
    if set_options.get("known_hosts") is False:
        connect["known_hosts"] = None  # disables host key verification
    if set_options.get("config") is False:
        connect["config"] = None
    if set_options.get("agent") is False:
        connect["agent_path"] = None
    key = set_options.get("key_file") or os.environ.get("COMPOSER_SFTP_KEY_FILE")
    if key:
        connect["client_keys"] = [_key(key, set_options.get("passphrase"), server.host)]
    return connect


def _key(path: str, passphrase: str | None, host: str) -> Any:
    import asyncssh

    try:
        return asyncssh.read_private_key(Path(path).expanduser(), passphrase)
    except (OSError, ValueError) as error:
        name = type(error).__name__
        raise AccessDenied(
            f"the key {path} for {host} cannot be used ({name}); check 'key_file' and 'passphrase'"
        ) from None
