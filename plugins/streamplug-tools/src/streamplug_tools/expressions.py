"""Python expressions about the columns of a sample.

They run with the permissions of the user. Data never becomes code: names and values of columns are only
looked up.
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
from keyword import iskeyword
from types import CodeType
from typing import Any, TypeGuard

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError, DataError
from streamplug.interfaces.storage import public_url
from streamplug.plugin.location import is_url

_MODULES = {"json": json, "math": math, "np": np, "re": re}
"""Modules that expressions can use."""
_HIDDEN_SAMPLE = "__sample__"
SAMPLE_NAMES = frozenset({"sample", _HIDDEN_SAMPLE})
"""Names of the dict of all columns; the second also if a column is called ``sample``."""
_COLUMN_NAME = re.compile(r"\w[\w .:/@#-]*")
"""Column names, which need not be Python names."""
_KNOWN_NAMES = {*_MODULES, *SAMPLE_NAMES, "number", *dir(builtins)}


@dataclass(frozen=True)
class Expression:
    """A Python expression; pickled as text.

    Its names are those of columns, ``sample`` for all of them in a dict, ``number`` for the number of the
    sample from 0, counted over all sources of a job that concatenates them, and the modules ``json``,
    ``math``, ``np`` and ``re``. If a column has one of these names, the name stands for the column. The name
    of a column stands for that column also where Python would read it otherwise, such as ``user id``; in
    longer expressions it is ``sample["user id"]``.

    Attributes:
        text: Source code.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ConfigError(f"expected an expression as text, got {self.text!r:.80}")
        if not _COLUMN_NAME.fullmatch(
            self.text.strip()
        ):  # else it may be a column's name: see `for_columns`
            _ = self._code

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @cached_property
    def _code(self) -> CodeType:
        try:
            return compile(self.text.strip(), "<expression>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConfigError(
                f"{self._public_text!r:.200} is no Python expression: {error}; write a column whose name has "
                "spaces or other marks in it as sample['user id']"
            ) from None

    @property
    def _public_text(self) -> str:
        """The text, or a URL, such as one of a file of another kind than .npy, without credentials."""
        text = self.text.strip()
        return public_url(text) if is_url(text) else text

    def for_columns(self, known: Collection[str]) -> Expression:
        """Return the expression for a data set with these columns.

        Raises:
            ConfigError: If it is neither a column name nor Python; suggests the nearest name.
        """
        text = self.text.strip()
        if text in known and (iskeyword(text) or not text.isidentifier()):
            name = "sample" if "sample" not in known else _HIDDEN_SAMPLE
            return Expression(f"{name}[{text!r}]")
        try:
            _ = self._code
        except ConfigError:
            shown = self._public_text
            check_names(f"{shown!r:.200} is no Python expression", "the data set", [shown], known)
            raise
        return self

    def columns(self, known: Collection[str]) -> list[str]:
        """Return the columns that it uses, or may use.

        Raises:
            ConfigError: If it uses an unknown name; suggests the nearest name.
        """
        free = self._free()
        check_names(f"{self.text!r:.200}", "the data set", free - _KNOWN_NAMES, known)
        if "sample" in known and _HIDDEN_SAMPLE not in free:  # `sample` is one column
            used = set(_names(self._code))
            return [name for name in known if name in used]
        return [name for name in known if self.uses(name)]

    @property
    def is_constant(self) -> bool:
        """Whether it names nothing but modules, so that it has the same value for all samples."""
        return self._free() <= _MODULES.keys()

    def uses(self, name: str) -> bool:
        """Return whether it uses, or may use, a column."""
        if name == self.text.strip():
            return True
        try:
            _ = self._code
            return self._used is None or name in self._used
        except ConfigError:  # the name of another column
            return False

    @cached_property
    def _used(self) -> frozenset[str] | None:
        """The names that it looks up; None for all columns."""
        nodes = list(ast.walk(ast.parse(self.text.strip(), mode="eval")))
        items = [node for node in nodes if _is_item(node)]
        if sum(isinstance(node, ast.Name) and node.id in SAMPLE_NAMES for node in nodes) > len(
            items
        ):
            return None
        return frozenset((*_names(self._code), *(item.slice.value for item in items)))

    def _free(self) -> set[str]:
        """Return the free names."""
        nodes = list(ast.walk(ast.parse(self.text.strip(), mode="eval")))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        return {name.id for name in names} - own

    def __call__(self, number: int, sample: Mapping[str, Any]) -> Any:
        """Evaluate for one sample.

        Raises:
            DataError: If evaluation fails; the message names the sample.
        """
        names = {
            **_MODULES,
            "sample": sample,
            "number": number,
            **sample,
            _HIDDEN_SAMPLE: sample,
        }
        try:
            return eval(self._code, names)  # noqa: S307 - the user's own code, see the module
        except Exception as error:
            raise self._error(number, error) from error

    def is_true(self, number: int, result: Any) -> bool:
        """Return whether the result for a sample is true.

        Raises:
            DataError: If it is neither true nor false, as an array; the message names the sample.
        """
        try:
            return bool(result)
        except Exception as error:
            raise self._error(number, error) from error

    def _error(self, number: int, error: Exception) -> DataError:
        kind = type(error).__name__
        return DataError(f"{self.text!r:.200} for sample {number}: {kind}: {error}")


def _is_item(node: ast.AST) -> TypeGuard[Any]:
    """Return whether a node is ``sample["name"]``."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in SAMPLE_NAMES
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code looks up, also in nested code."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
