"""Parameters of a class, from its signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator, Sequence
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


# Apart, as mypy does not take `type[T]` for the hashable argument of a cached function.
@cache
def _parameters(cls: type) -> dict[str, Parameter]:
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts.update(_described_parameters(base))
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for owner, signature in constructors(cls.__mro__):
        names = sys.modules[owner.__module__].__dict__
        for name, parameter in list(signature.parameters.items())[1:]:
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                defaults.setdefault(name, parameter.default)
                # A subclass need not repeat the type of a parameter that it passes on.
                if parameter.annotation is not REQUIRED:
                    hints.setdefault(name, _resolve_hint(parameter.annotation, names))
    return {
        name: Parameter(hints.get(name, Any), default, texts.get(name, ""))
        for name, default in defaults.items()
    }


def constructors(classes: Sequence[type]) -> Iterator[tuple[type, inspect.Signature]]:
    """Yield the classes that have constructors, up to the first that passes no ``**kwargs`` on."""
    for cls in classes:
        if "__init__" in cls.__dict__ and cls is not object:
            signature = inspect.signature(cls.__dict__["__init__"])
            yield cls, signature
            if not has_any_keywords(signature):
                return


def has_any_keywords(signature: inspect.Signature) -> bool:
    """Return whether a signature has ``**kwargs``."""
    return any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())


def _resolve_hint(hint: Any, names: dict[str, Any]) -> Any:
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
