"""The options that all storages of obstore take, and what obstore is given for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from streamplug.errors import ConfigError
from streamplug.plugin_kit.options import OptionTypes, check_options, check_positive, check_url

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
RETRIES = 3
RETRY_SECONDS = 60.0

_COMMON: OptionTypes = {
    "client_options": Mapping,
    "config": Mapping,
    "connect_timeout": (int, float),
    "read_timeout": (int, float),
    "retry_config": Mapping,
}


def check(what: str, options: Mapping[str, Any], own: OptionTypes) -> dict[str, Any]:
    """Return the options that are given, having refused those that have no meaning.

    Args:
        what: The storage, for errors.
        options: What the user gave.
        own: Options that the storage has besides those that all have.

    Raises:
        ConfigError: If a name is unknown, or a value is of the wrong type or does not fit.
    """
    check_options(what, options, {**_COMMON, **own})
    check_url(what, options, "endpoint_url", "https://host:port")
    check_positive(what, options, "connect_timeout", "read_timeout")
    return {name: value for name, value in options.items() if value is not None}


def exclude(what: str, given: Mapping[str, Any], *names: str) -> None:
    """Refuse more than one of several options.

    Raises:
        ConfigError: If there are.
    """
    found = [name for name in names if given.get(name) not in (None, False)]
    if len(found) > 1:
        raise ConfigError(f"{what} options {found[0]!r} and {found[1]!r} exclude each other")


def together(what: str, given: Mapping[str, Any], *names: str) -> None:
    """Refuse some of several options without the others.

    Raises:
        ConfigError: If one is given and another is not.
    """
    if 0 < len(given.keys() & set(names)) < len(names):
        listed = ", ".join(repr(name) for name in names)
        raise ConfigError(f"{what} options {listed} go together: give all or none")


def transport(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a store that say how requests are made."""
    return {
        "client_options": {
            "allow_http": True,  # a server is asked in clear only if its URL says so
            "connect_timeout": timedelta(seconds=given.get("connect_timeout", CONNECT_TIMEOUT)),
            "read_timeout": timedelta(seconds=given.get("read_timeout", READ_TIMEOUT)),
            # Of a whole request, which may be large; obstore would end it after 30 seconds.
            "timeout": timedelta(days=1),
            **given.get("client_options", {}),
        },
        "retry_config": {
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            **given.get("retry_config", {}),
        },
    }
