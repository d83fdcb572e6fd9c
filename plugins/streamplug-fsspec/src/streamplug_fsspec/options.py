"""Checks of plugin options, whose values are not shown in errors because they may be secrets."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from streamplug.errors import ConfigError

OptionTypes = Mapping[str, type | tuple[type, ...]]
"""Accepted type or types of each option."""


def check_options(what: str, options: Mapping[str, Any], known: OptionTypes) -> None:
    """Check names and types of options; None is valid for any option.

    Args:
        what: Owner of the options for errors, such as ``"s3 storage"``.
        options: Options of the user.
        known: Types of all valid options.

    Raises:
        ConfigError: If an option is unknown (the nearest name is suggested) or of the wrong type.
    """
    for name, value in options.items():
        if name not in known:
            matches = difflib.get_close_matches(name, known, 1, 0.5)
            names = ", ".join(sorted(known))
            hint = f"Did you mean {matches[0]!r}?" if matches else f"Known: {names}"
            raise ConfigError(f"{what} takes no option {name!r}. {hint}")
        # bool is a subclass of int, but not a number of seconds.
        wrong_bool = isinstance(value, bool) and bool not in _kinds(known[name])
        if value is not None and (wrong_bool or not isinstance(value, known[name])):
            raise ConfigError(
                f"{what} option {name!r} must be {_spell(known[name])}, not {type(value).__name__}"
            )


def check_positive(what: str, options: Mapping[str, Any], *names: str) -> None:
    """Check that the given options among `names` are above 0.

    Raises:
        ConfigError: If one is not.
    """
    for name in names:
        if options.get(name) is not None and options[name] <= 0:
            raise ConfigError(f"{what} option {name}={options[name]}: must be positive")


def check_url(what: str, options: Mapping[str, Any], name: str, example: str) -> None:
    """Check that an option, if given, is an HTTP or HTTPS URL, without showing it.

    Raises:
        ConfigError: If it is not.
    """
    if options.get(name) and not options[name].startswith(("http://", "https://")):
        raise ConfigError(
            f"{what} option {name!r} must start with http:// or https://, such as {example}"
        )


def endpoint_of_environment(*variables: str) -> str:
    """Return the URL in the first of several environment variables that is set, or an empty string.

    Raises:
        ConfigError: If it does not begin with http:// or https://; it names the variable.
    """
    name = next((name for name in variables if os.environ.get(name)), "")
    endpoint = os.environ.get(name, "")
    if endpoint and not endpoint.lower().startswith(("http://", "https://")):
        raise ConfigError(
            f"the environment variable {name} must start with http:// or https://, such as https://host:port"
        )
    return endpoint


def _kinds(types: type | tuple[type, ...]) -> tuple[type, ...]:
    return types if isinstance(types, tuple) else (types,)


def _spell(types: type | tuple[type, ...]) -> str:
    names = ["dict" if kind is Mapping else kind.__name__ for kind in _kinds(types)]
    return "a dict" if names == ["dict"] else " or ".join(names)
