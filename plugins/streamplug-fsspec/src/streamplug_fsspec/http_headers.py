"""Headers of HTTP requests, of which some are credentials."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from streamplug.errors import ConfigError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_ENDS = re.compile(r"[\r\n\0]")


def check_headers(options: Mapping[str, Any]) -> None:
    """Check the headers, cookies and logins in the options of an HTTP client, without showing them.

    Raises:
        ConfigError: If one is invalid; it names the option.
    """
    client = options.get("client_kwargs")
    if client is not None and not isinstance(client, Mapping):
        raise ConfigError(
            f"http storage option 'client_kwargs' must be a dict, not {_type(client)}"
        )
    for given, prefix in ((options, ""), (client or {}, "client_kwargs: ")):
        what = f"http storage option {prefix}"
        check_header_values(f"{what}'headers'", given.get("headers"))
        if not isinstance(given.get("cookies"), (Mapping, type(None))):
            raise ConfigError(f"{what}'cookies' must be a dict, not {_type(given['cookies'])}")
        auth = given.get("auth")
        is_login = isinstance(auth, (tuple, list)) and len(auth) >= 2
        if auth is not None and not (is_login and all(isinstance(t, str) for t in auth[:2])):
            raise ConfigError(
                f"{what}'auth' must be a user and a password, such as ('me', 'password'), not {_type(auth)}; "
                "pass a token as headers={'Authorization': 'Bearer …'}"
            )


def check_header_values(what: str, headers: Any) -> None:
    """Check that an option, named `what`, has headers, or is None.

    Raises:
        ConfigError: If it has not.
    """
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        raise ConfigError(f"{what} must be a dict, not {_type(headers)}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigError(f"{what}: {name!r:.80} is no name of a header")
        if not isinstance(value, str):
            raise ConfigError(f"{what}: the value of {name!r:.80} must be str, not {_type(value)}")
        if _LINE_ENDS.search(value):
            raise ConfigError(f"{what}: the value of {name!r:.80} has the end of a line in it")


def take_headers(options: dict[str, Any]) -> dict[str, str]:
    """Remove headers, cookies and login from options, and return them as headers.

    aiohttp sends its own forms of cookies and logins to all hosts.
    """
    headers, cookies = dict(options.pop("headers", None) or {}), options.pop("cookies", None)
    if auth := options.pop("auth", None):
        headers["Authorization"] = basic_login(*auth[:2])
    if cookies:
        pairs = dict(cookies).items()
        headers["Cookie"] = "; ".join(f"{name}={getattr(v, 'value', v)}" for name, v in pairs)
    return headers


def basic_login(user: str, password: str) -> str:
    """Return the Authorization header of a user and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _type(value: object) -> str:
    return type(value).__name__
