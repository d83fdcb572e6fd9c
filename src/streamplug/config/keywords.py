"""Suggestions for misspelt keyword arguments of constructors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from streamplug.config.parameters import parameters
from streamplug.config.validation import suggest_name
from streamplug.errors import UnknownKeywordError

T = TypeVar("T")

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def suggest_keywords(cls: type[T]) -> type[T]:
    """Make the constructor of a class suggest the nearest keyword for an unknown one.

    The constructor must pass all of ``**kwargs`` to the next class in the MRO, whose constructors
    determine the valid keywords; nothing is checked if one of them accepts any. Apply outside of
    ``@dataclass``.
    """
    init = cls.__dict__["__init__"]

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            _check(type(self), cls, kwargs, type(self))
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]  # the signature is that of what it wraps
    return cls


def check_keywords(cls: type, given: Mapping[str, Any], by: type | None = None) -> None:
    """Check keywords against a constructor, unless it has ``**kwargs``.

    Args:
        cls: Class of the constructor.
        given: Keyword arguments.
        by: The class called by the user, if it is another one that passes keywords on.
    """
    owner = next(base for base in cls.__mro__ if "__init__" in base.__dict__)
    if has_fixed_keywords(owner):
        _check(cls, owner, given, by or cls)


def has_fixed_keywords(cls: type) -> bool:
    """Return whether the class's own constructor has no ``**kwargs``."""
    found = inspect.signature(cls.__dict__["__init__"]).parameters.values()
    return all(parameter.kind is not parameter.VAR_KEYWORD for parameter in found)


def _check(made: type, owner: type, given: Mapping[str, Any], by: type) -> None:
    accepted = _accepted(made, owner)
    if accepted is None:
        return
    for name in given:
        if name not in accepted:
            # Includes keywords of subclasses, which the user may have meant.
            known = sorted({*accepted, *parameters(by)})
            raise UnknownKeywordError(
                f"{by.__name__}({name}=…): no such argument{suggest_name(name, known)}"
            )


@functools.lru_cache(maxsize=256)
def _accepted(made: type, owner: type) -> frozenset[str] | None:
    """Return the keywords that the constructor of `owner` accepts in a `made`; None for any."""
    line = made.__mro__
    names: set[str] = set()
    for cls in line[line.index(owner) :]:
        init = cls.__dict__.get("__init__")
        if init is None or cls is object:
            continue
        found = list(inspect.signature(init).parameters.values())[1:]
        names.update(parameter.name for parameter in found if parameter.kind in _NAMED)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in found):
            return frozenset(names)
    return None
