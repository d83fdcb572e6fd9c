"""The option ``--storage-options`` of commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from streamplug.config import load, to_plain
from streamplug.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])

_EXPECTED = "expected a JSON object, such as '{\"anon\": true}', or KEY=VALUE"


def storage_options(
    option: str = "--storage-options", text: str = "Storage options, such as region=eu-west-1."
) -> Callable[[Command], Command]:
    """Return a decorator that adds the option, whose value is a dict or None; `text` begins its help."""
    return click.option(
        option,
        multiple=True,
        callback=_parse,
        metavar="JSON|KEY=VALUE",
        help=f"{text} Pass KEY=VALUE or a JSON object; can be repeated.",
    )


def _parse(
    _: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> dict[str, Any] | None:
    """Merge all uses of the option; errors never show a value, which may be a secret."""
    if not texts:
        return None
    option = parameter.opts[0]
    options: dict[str, Any] = {}
    for text in texts:
        options |= _object(option, text.strip())
    return options


def _object(option: str, text: str) -> dict[str, Any]:
    if text[:1] in ("{", "["):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{option}: not JSON: {error}") from None
    else:
        key, mark, value = text.partition("=")
        parsed = {key.strip(): _value(value.strip())} if key.strip() and mark else None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{option}: {_EXPECTED}")
    if "${env:" not in text:
        return parsed
    try:
        filled: dict[str, Any] = to_plain(load(parsed))
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None
    return filled


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
