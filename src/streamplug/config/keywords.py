"""Suggestions for misspelt keyword arguments of functions and constructors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

from streamplug.config.signatures import constructors, has_any_keywords, parameters
from streamplug.config.validation import suggest_name
from streamplug.errors import UnknownKeywordError

C = TypeVar("C", bound=Callable[..., Any])


def suggest_keywords(target: C) -> C:
    """Make a function, or the constructor of a class, suggest the nearest keyword for an unknown one.

    A function must not have ``**kwargs``. A constructor must pass all of ``**kwargs`` to the next class in
    the MRO, whose constructors determine the valid keywords; nothing is checked if one of them accepts any.
    Apply outside of ``@dataclass``.
    """
    if isinstance(target, type):
        _check_constructor(target)
        return target
    names = _keyword_names(inspect.signature(target).parameters.values())

    @functools.wraps(target)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in names:
                raise _unknown_keyword(target.__name__, name, names)
        return target(*args, **kwargs)

    return cast("C", checked)


def _check_constructor(cls: type) -> None:
    init = cls.__dict__["__init__"]

    @functools.wraps(init)
    def checked(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            _check(_accepted(type(self), cls), kwargs, type(self))
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[misc]  # the signature is that of what it wraps


def check_keywords(cls: type, keywords: Iterable[str], caller: type) -> None:
    """Check keywords that the constructor of `caller` passes on to that of `cls`."""
    _check(_accepted(cls, cls), keywords, caller)


def _check(accepted: frozenset[str] | None, keywords: Iterable[str], caller: type) -> None:
    for name in keywords:
        if accepted is not None and name not in accepted:
            # Includes keywords of subclasses, which the user may have meant.
            raise _unknown_keyword(caller.__name__, name, {*accepted, *parameters(caller)})


def _unknown_keyword(caller: str, name: str, known: Collection[str]) -> UnknownKeywordError:
    return UnknownKeywordError(
        f"{caller}({name}=…): no such argument{suggest_name(name, sorted(known))}"
    )


def _accepted(cls: type, owner: type) -> frozenset[str] | None:
    """Return the keywords that the constructor of `owner` accepts in an object of `cls`; None for any."""
    classes = cls.__mro__
    signatures = [signature for _, signature in constructors(classes[classes.index(owner) :])]
    if has_any_keywords(signatures[-1]):
        return None
    return _keyword_names(
        parameter
        for signature in signatures
        for parameter in list(signature.parameters.values())[1:]
    )


def _keyword_names(parameters: Iterable[inspect.Parameter]) -> frozenset[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in kinds)
