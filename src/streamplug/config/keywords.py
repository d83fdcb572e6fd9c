"""Suggestions for misspelt keyword arguments of constructors."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeVar

from streamplug.config.parameters import constructors, has_any_keywords, parameters
from streamplug.config.validation import suggest_name
from streamplug.errors import UnknownKeywordError

T = TypeVar("T")


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
            _check(_accepted(type(self), cls), kwargs, type(self))
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[assignment]  # the signature is that of what it wraps
    return cls


def check_keywords(cls: type, keywords: Iterable[str], caller: type) -> None:
    """Check keywords that the constructor of `caller` passes on to that of `cls`."""
    _check(_accepted(cls, cls), keywords, caller)


def _check(accepted: frozenset[str] | None, keywords: Iterable[str], caller: type) -> None:
    for name in keywords:
        if accepted is not None and name not in accepted:
            # Includes keywords of subclasses, which the user may have meant.
            known = sorted({*accepted, *parameters(caller)})
            raise UnknownKeywordError(
                f"{caller.__name__}({name}=…): no such argument{suggest_name(name, known)}"
            )


def _accepted(cls: type, owner: type) -> frozenset[str] | None:
    """Return the keywords that the constructor of `owner` accepts in an object of `cls`; None for any."""
    classes = cls.__mro__
    signatures = [signature for _, signature in constructors(classes[classes.index(owner) :])]
    if has_any_keywords(signatures[-1]):
        return None
    return frozenset(
        parameter.name
        for signature in signatures
        for parameter in list(signature.parameters.values())[1:]
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    )
