"""Types of the values of options: sizes, counts, and values that are given once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from streamplug.config import parse_bytes, parse_count
from streamplug.errors import ConfigError


class _Parsed(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    def __init__(self, name: str, parse: Callable[[Any, str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return self._parse(value, "")
        except ConfigError as error:
            self.fail(str(error).removeprefix("="), param, ctx)


SIZE = _Parsed("size", parse_bytes)
"""Bytes, such as ``64mb``."""
COUNT = _Parsed("count", parse_count)
"""A whole number, such as ``100k``."""


def refuse_repeated(
    advice: str,
) -> Callable[[click.Context, click.Parameter, Sequence[str]], str | None]:
    """Return the callback of an option that is given once, but looks as if it could be repeated.

    The option has ``multiple=True``, without which click ignores all values but the last. The parameter gets
    the value, or None.

    Args:
        advice: What to do instead, for the error.
    """

    def check(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> str | None:
        if len(values) > 1:
            raise click.UsageError(
                f"{parameter.opts[0]} is given {len(values)} times; give it once: {advice}"
            )
        return values[0] if values else None

    return check
