"""Base class of conformance tests, which requires a reason for each test that is disabled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import Any, ClassVar

import pytest


class ConformanceBase:
    """Base of the conformance classes: subclasses declare the tests that they fail, with a reason.

    Inherited tests named in `deviations` are strict expected failures. To replace a test, name it there
    and redefine it; redefining a test without naming it, or naming a test that does not exist, is a
    `TypeError`.

    Attributes:
        deviations: Reason by test name, for this class only; subclasses inherit the effect.
    """

    deviations: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the declared deviations and mark the tests."""
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
