"""Expressions: Python that a user writes about the columns of a sample.

They are code of whoever gives them, as a program of theirs would be. Data never becomes code: names and
values of columns are only looked up.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError, DataError

_KNOWN = {"json": json, "math": math, "np": np, "re": re}
"""What expressions may use besides the columns and Python's own functions."""
_ALL = frozenset({"sample"})
_GIVEN = {*_KNOWN, *_ALL, "number", *dir(builtins)}


@dataclass(frozen=True)
class Expression:
    """A Python expression; as text it goes to other processes.

    Its names are those of columns, ``sample`` for all of them in a dict, ``number`` for the number of the
    sample in its data set, and the modules ``json``, ``math``, ``np`` and ``re``.

    Attributes:
        text: What the user has written.
    """

    text: str

    def __post_init__(self) -> None:
        _ = self._code

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _code(self) -> CodeType:
        try:
            return compile(self.text.strip(), "<expression>", "eval")
        except (SyntaxError, ValueError) as error:
            raise ConfigError(f"{self.text!r:.200} is no Python expression: {error}") from None

    def columns(self, known: Collection[str]) -> list[str]:
        """Return which of some columns it uses, or may use.

        Raises:
            ConfigError: If it uses a name that nothing has; the nearest that does is told.
        """
        check_names(f"{self.text!r:.200}", "the data set", self._free() - _GIVEN, known)
        return [name for name in known if self.uses(name)]

    def uses(self, name: str) -> bool:
        """Say whether it uses a column, or may use it."""
        used = set(_names(self._code))
        return bool(used & _ALL) or name in used

    def _free(self) -> set[str]:
        """Return the names that it does not give values itself, as loops and lambdas do."""
        nodes = list(ast.walk(ast.parse(self.text.strip(), mode="eval")))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        return {name.id for name in names} - own

    def __call__(self, number: int, sample: Mapping[str, Any]) -> Any:
        """Return its value for a sample.

        Raises:
            DataError: If it has none; the message says for which sample.
        """
        names = {**_KNOWN, **sample, "sample": sample, "number": number}
        try:
            return eval(self._code, names)  # noqa: S307 - the user's own code, see the module
        except Exception as error:
            raise DataError(
                f"{self.text!r:.200} for sample {number}: {type(error).__name__}: {error}"
            ) from error


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, also in functions and loops inside of it."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
