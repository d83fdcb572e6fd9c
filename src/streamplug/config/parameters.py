"""Parameters of a class, from its signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

REQUIRED = inspect.Parameter.empty

_SECTION = re.compile(r"^(Args|Attributes):\n((?:[ ]+.*\n|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a class.

    Attributes:
        hint: Type of the parameter; `object` if it cannot be resolved.
        default: Default value, or `REQUIRED`.
        text: Description from the docstring.
    """

    hint: Any
    default: Any
    text: str


def parameters(cls: type) -> dict[str, Parameter]:
    """Return the parameters of a class by name; ``**kwargs`` are those of the next class in the MRO."""
    return _parameters(cls)


@cache
def _parameters(cls: type) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    texts: dict[str, str] = {}
    for name, text in (pair for base in cls.__mro__ for pair in _described_parameters(base)):
        texts.setdefault(name, text)
    for init, owner in _constructors(cls):
        signature = inspect.signature(init)
        names = sys.modules[owner.__module__].__dict__
        for name, given in list(signature.parameters.items())[1:]:
            if given.kind in (given.POSITIONAL_OR_KEYWORD, given.KEYWORD_ONLY):
                hint = _resolve_hint(given.annotation, names)
                found.setdefault(name, Parameter(hint, given.default, texts.get(name, "")))
        if not any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values()):
            break
    return found


def _constructors(cls: type) -> Iterator[tuple[Any, type]]:
    for base in cls.__mro__:
        if "__init__" in base.__dict__ and base is not object:
            yield base.__dict__["__init__"], base


def _resolve_hint(hint: Any, names: dict[str, Any]) -> Any:
    if hint is REQUIRED:
        return Any
    # One at a time: a name imported only for type checkers must not affect other hints.
    annotated = SimpleNamespace(__annotations__={"hint": hint})
    try:
        return typing.get_type_hints(annotated, globalns=names)["hint"]
    except (NameError, TypeError):
        return object


def _described_parameters(cls: type) -> Iterator[tuple[str, str]]:
    # Not inspect.getdoc, which returns inherited docstrings.
    text = inspect.cleandoc(cls.__dict__.get("__doc__") or "") + "\n"
    for section in _SECTION.finditer(text):
        for entry in _ENTRY.finditer(section[2]):
            yield entry[1], " ".join(entry[2].split())


def is_section(hint: Any) -> bool:
    """Return whether a type is a dataclass, whose fields are keys of a configuration."""
    return isinstance(hint, type) and is_dataclass(hint)
