"""Types of the values of options: sizes and counts."""

from __future__ import annotations

from collections.abc import Callable
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
