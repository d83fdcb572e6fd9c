"""The rule that keeps a conformance test from being switched off without a word."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar

import pytest


class ConformanceBase:
    """Base of the conformance classes: what a subclass does not fulfil, it names, with a reason.

    A test of a base that is named in `deviations` is expected to fail, and fails the run if it
    does not. To put another test in its place, name it there and define it anew; defining it anew
    without naming it is a `TypeError`, as is naming a test that no base has.

    Attributes:
        deviations: Reason by name of the test, for this very class; subclasses inherit its effect.
    """

    deviations: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Hold the class to the rule."""
        super().__init_subclass__(**kwargs)
        deviations: Mapping[str, str] = cls.__dict__.get("deviations", {})
        for name in cls.__dict__:
            if name.startswith("test_") and name not in deviations and _inherited(cls, name):
                raise TypeError(
                    f"{cls.__name__} redefines {name}: name it in `deviations` with the reason"
                )
        for name, reason in deviations.items():
            _deviate(cls, name, reason)


def _inherited(cls: type, name: str) -> Any:
    return getattr(super(cls, cls), name, None)


def _deviate(cls: type, name: str, reason: str) -> None:
    test = _inherited(cls, name)
    if not name.startswith("test_") or test is None:
        raise TypeError(f"{cls.__name__}.deviations names {name}, which no base class tests")
    if not reason.strip():
        raise TypeError(f"{cls.__name__}.deviations gives no reason for {name}")
    if name in cls.__dict__:
        return

    # A copy: the mark must not reach the base's other subclasses.
    @wraps(test)
    def deviating(*args: Any, **kwargs: Any) -> None:
        test(*args, **kwargs)

    setattr(cls, name, pytest.mark.xfail(strict=True, reason=reason)(deviating))
