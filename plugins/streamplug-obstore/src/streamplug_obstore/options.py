"""Options of all obstore storages, and their translation for obstore."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from streamplug_fsspec import OptionTypes, check_options, check_positive, check_url

from streamplug.errors import ConfigError

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
RETRIES = 3
RETRY_SECONDS = 60.0

_COMMON: OptionTypes = {
    "client_options": Mapping,
    "config": Mapping,
    "connect_timeout": (int, float),
    "hedge": bool,
    "rate_limit": (bool, int, float),
    "read_timeout": (int, float),
    "retry_config": Mapping,
}


def check(what: str, options: Mapping[str, Any], own: OptionTypes) -> dict[str, Any]:
    """Check options and return those that are not None.

    Args:
        what: Name of the storage, for errors.
        options: Options of the user.
        own: Types of options besides the common ones.

    Raises:
        ConfigError: If an option is unknown, or has the wrong type or an invalid value.
    """
    check_options(what, options, {**_COMMON, **own})
    check_url(what, options, "endpoint_url", "https://host:port")
    check_positive(what, options, "connect_timeout", "read_timeout")
    set_options = {
        name: value
        for name, value in options.items()
        if value is not None and name not in ("hedge", "rate_limit")
    }
    if "endpoint_url" in set_options:  # obstore appends a path
        set_options["endpoint_url"] = set_options["endpoint_url"].rstrip("/")
    return set_options


def exclude(what: str, options: Mapping[str, Any], *names: str) -> None:
    """Check that at most one of several options is given.

    Raises:
        ConfigError: If more than one is given.
    """
    conflicting = [name for name in names if options.get(name) not in (None, False)]
    if len(conflicting) > 1:
        raise ConfigError(
            f"{what} options {conflicting[0]!r} and {conflicting[1]!r} exclude each other"
        )


def together(what: str, options: Mapping[str, Any], *names: str) -> None:
    """Check that several options are given together or not at all.

    Raises:
        ConfigError: If only some are given.
    """
    if 0 < len(options.keys() & set(names)) < len(names):
        listed = ", ".join(repr(name) for name in names)
        raise ConfigError(f"{what} options {listed} go together: give all or none")


def transport(options: Mapping[str, Any], retries: int) -> dict[str, Any]:
    """Return the client options of a store that repeats a request up to `retries` times."""
    return {
        "client_options": {
            "allow_http": True,  # plain HTTP is used only for http:// URLs
            "connect_timeout": timedelta(seconds=options.get("connect_timeout", CONNECT_TIMEOUT)),
            "read_timeout": timedelta(seconds=options.get("read_timeout", READ_TIMEOUT)),
            # Total time per request, which may be large; the default of obstore is 30 seconds.
            "timeout": timedelta(days=1),
            **options.get("client_options", {}),
        },
        "retry_config": {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
            **options.get("retry_config", {}),
        },
    }
