"""Python expressions about the columns of a sample.

Data never becomes code: names and values of columns are only looked up.
"""

from __future__ import annotations

import ast
import builtins
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from keyword import iskeyword, kwlist
from types import CodeType
from typing import Any, TypeGuard, cast

import numpy as np

from streamplug.config import check_names
from streamplug.errors import ConfigError, DataError
from streamplug.interfaces import public_url
from streamplug.plugin import is_url
from streamplug_tools.expression_grammar import restrict
from streamplug_tools.value_hash import xxh64

_FREE_NAMES = {"json": json, "math": math, "np": np, "re": re, "xxh64": xxh64}
"""Modules and functions that free expressions can use besides Python's."""
_HIDDEN_SAMPLE = "__sample__"
SAMPLE_NAMES = frozenset({"sample", _HIDDEN_SAMPLE})
"""Names of the dict of all columns; the second also if a column is called ``sample``."""
_BUILTINS = {"__builtins__": {"__import__": __import__}}
"""NumPy's methods import modules by this; the grammar has no way to call it."""
_ROWS = "rows()"
"""Name of the rows in a loop over samples, which no column can take."""
_PYTHON_NAMES = {*_FREE_NAMES, *SAMPLE_NAMES, "number", *dir(builtins)}
_OTHER_KEYWORDS = {*kwlist} - {
    "False",
    "None",
    "True",
    "and",
    "else",
    "for",
    "if",
    "in",
    "is",
    "lambda",
}
_OTHER_KEYWORDS -= {"not", "or"}
"""Keywords of Python that no expression has, as `class`: they stand for columns."""
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_LITERAL = re.compile(f"({_QUOTED.pattern})")
_ASSIGNED = re.compile(r"(?<![=!<>:])=(?!=)")
_COLUMN_NAME = re.compile(r"\w[\w .:/@#-]*")
"""Column names, which need not be Python names."""


@dataclass(frozen=True)
class Expression:
    """A Python expression; pickled as text.

    It is a function of the sample: only what `streamplug_tools.expression_grammar` lists can be part of it.
    Its names are those of columns, ``sample`` for all of them in a dict, and ``number`` for the number of the
    sample from 0, counted over all sources of a job that concatenates them. If a column has one of these
    names, the name stands for the column. The name of a column stands for that column also where Python would
    read it otherwise, such as ``user id``; in longer expressions it is ``sample["user id"]``.

    Attributes:
        text: Source code.
        is_free: Whether it can contain any Python, with the permissions of the user, as the value of a column
            may, but not what decides over samples. It has the modules ``json``, ``math``, ``np`` and ``re``.
    """

    text: str
    is_free: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ConfigError(f"expected an expression as text, got {self.text!r:.80}")
        if not _COLUMN_NAME.fullmatch(
            self.text.strip()
        ):  # else it may be a column's name: see `for_columns`
            _ = self._code

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "is_free": self.is_free}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def parse(self) -> ast.Expression:
        """Return the syntax tree of the text.

        Raises:
            ConfigError: If it is no Python expression.
        """
        try:
            return ast.parse(self.text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._invalid(error) from None

    @cached_property
    def _checked(self) -> tuple[ast.Expression, Mapping[str, Any]]:
        """The syntax tree that is compiled, and what its names mean that are no columns."""
        tree = self.parse()
        if self.is_free:
            return tree, _FREE_NAMES
        try:
            tree, functions = restrict(tree, self._public_text)
        except RecursionError as error:
            raise self._invalid(error) from None
        return tree, functions

    @cached_property
    def _code(self) -> CodeType:
        tree, _ = self._checked
        try:
            return compile(tree, "<expression>", "eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._invalid(error) from None

    def _invalid(self, error: Exception) -> ConfigError:
        what, text = f"{self._public_text!r:.200} is no Python expression", self.text
        for word in re.findall(r"\w+", _QUOTED.sub("", text)):
            if word in _OTHER_KEYWORDS:
                return ConfigError(
                    f"{what}: {word} is a keyword of Python; write the column of this name as "
                    f"sample[{word!r}]"
                )
        if (compared := _with_comparisons(text)) is not None:
            return ConfigError(
                f"{what}: a single = compares nothing; write == to compare: {compared!r:.200}"
            )
        return ConfigError(
            f"{what}: {getattr(error, 'msg', error)}; write a column whose name has spaces or other marks in "
            "it as sample['user id']"
        )

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
            return replace(self, text=f"{name}[{text!r}]")
        try:
            self.parse()
        except ConfigError:
            shown = self._public_text
            check_names(f"{shown!r:.200} is no Python expression", "the data set", [shown], known)
            raise
        _ = self._code  # raises for what cannot be part of it
        return self

    def columns(self, known: Collection[str]) -> list[str]:
        """Return the columns that it uses, or may use.

        Raises:
            ConfigError: If it uses an unknown name; suggests the nearest name.
        """
        free = self._free()
        own = _PYTHON_NAMES if self.is_free else {"number", *SAMPLE_NAMES}
        check_names(f"{self.text!r:.200}", "the data set", free - own, known)
        if "sample" in known and _HIDDEN_SAMPLE not in free:  # `sample` is one column
            used = set(_names(self._code))
            return [name for name in known if name in used]
        return [name for name in known if self.uses(name)]

    @property
    def is_constant(self) -> bool:
        """Whether it names no column, so that it has the same value for all samples."""
        return not self.is_free and not self._free()

    @property
    def uses_number(self) -> bool:
        """Whether it names `number`, of the sample or a column."""
        return "number" in self._free()

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
        nodes = list(ast.walk(self._checked[0]))
        items = [node for node in nodes if _is_item(node)]
        if sum(isinstance(node, ast.Name) and node.id in SAMPLE_NAMES for node in nodes) > len(
            items
        ):
            return None
        return frozenset((*_names(self._code), *(item.slice.value for item in items)))

    def _free(self) -> set[str]:
        """Return the free names, without those of functions of the grammar."""
        tree, functions = self._checked
        nodes = list(ast.walk(tree))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        own = {name.id for name in names if isinstance(name.ctx, ast.Store)}
        own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= set() if self.is_free else functions.keys()
        return {name.id for name in names} - own

    def __call__(self, number: int, sample: Mapping[str, Any]) -> Any:
        """Evaluate for one sample.

        Raises:
            DataError: If evaluation fails; the message names the sample.
        """
        functions = self._checked[1]
        names = {"sample": sample, "number": number, **sample, _HIDDEN_SAMPLE: sample}
        # A column may have the name of a module, but none of the grammar's names.
        names = {**functions, **names} if self.is_free else {**names, **functions, **_BUILTINS}
        try:
            return eval(self._code, names)  # noqa: S307 - restricted, or the user's own code
        except Exception as error:
            raise self._error(number, error) from error

    def of_columns(
        self, numbers: Sequence[int], columns: Mapping[str, Sequence[Any]]
    ) -> list[Any] | None:
        """Evaluate for many samples, in a tenth of the time that one by one takes.

        Args:
            numbers: Numbers of the samples.
            columns: Their values of each column.

        Returns:
            The results; None if it must be evaluated one by one, as it fails for a sample, or uses whole
            samples.
        """
        loop = self._loop(tuple(columns))
        if loop is None:
            return None
        code, targets = loop
        values = {"number": numbers, **columns, **{f"{name}[]": columns[name] for name in columns}}
        names = {**self._checked[1], **_BUILTINS, _ROWS: zip(*(values[t] for t in targets))}
        try:
            results: list[Any] = eval(code, names)  # noqa: S307 - restricted, as in `__call__`
        except Exception:  # noqa: BLE001 - one by one, which names the sample
            return None
        return results

    def _loop(self, columns: tuple[str, ...]) -> tuple[CodeType, list[str]] | None:
        """Return code that lists the results for rows of values, and the names of the values in a row."""
        loops: dict[tuple[str, ...], Any] = self.__dict__.setdefault("_loops", {})
        if columns not in loops:
            whole = self.is_free or self._used is None or "sample" in columns
            loops[columns] = None
            # Nested as deeply as Python reads it, it may be too deep to be changed.
            with suppress(RecursionError, SyntaxError):
                loops[columns] = None if whole else self._compile_loop(columns)
        return cast("tuple[CodeType, list[str]] | None", loops[columns])

    def _compile_loop(self, columns: tuple[str, ...]) -> tuple[CodeType, list[str]]:
        body = _ItemsAsNames().visit(deepcopy(self._checked[0].body))
        used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)}
        used -= {*self._checked[1], *_BUILTINS}  # which no column can take the place of
        names = dict.fromkeys(["number", *columns, *(f"{name}[]" for name in columns)])
        targets = [name for name in names if name in used] or ["number"]
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in targets], ast.Store())
        rows = ast.comprehension(target, ast.Name(_ROWS, ast.Load()), [], is_async=0)
        tree = ast.fix_missing_locations(ast.Expression(ast.ListComp(body, [rows])))
        return compile(tree, "<expression>", "eval"), targets

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


def _with_comparisons(text: str) -> str | None:
    """Return an expression with ``==`` in place of each ``=``; None if it has none, or is still invalid."""
    parts = _LITERAL.split(text.strip())  # every second one is a literal
    parts[::2] = [_ASSIGNED.sub("==", part) for part in parts[::2]]
    compared = "".join(parts)
    if compared == text.strip():
        return None
    try:
        ast.parse(compared, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return compared


class _ItemsAsNames(ast.NodeTransformer):
    """Puts names that are no Python names in place of ``sample["name"]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        item: Any = node
        return (
            ast.Name(f"{item.slice.value}[]", ast.Load())
            if _is_item(node)
            else self.generic_visit(node)
        )


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
