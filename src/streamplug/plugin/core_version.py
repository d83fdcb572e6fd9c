"""The versions of streamplug that the metadata of a distribution allow."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, version
from itertools import zip_longest

_REQUIREMENT = re.compile(r"streamplug\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?\s*(;.*)?", re.IGNORECASE)
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*v?([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

Release = tuple[int, ...]


def excluding_requirement(distribution: Distribution | None) -> str:
    """Return the requirement by which a distribution excludes the installed core; empty if there is none.

    Installers check requirements only when they install, and a later one of another version of the core
    leaves the distribution. Clauses of other forms than releases, such as pre-releases, are not compared.
    """
    release = _installed_release()
    if release is None or distribution is None:
        return ""
    requirements: Iterable[str] = getattr(distribution, "requires", None) or ()
    for requirement in requirements:
        match = _REQUIREMENT.fullmatch(requirement.strip())
        if match is None or "extra" in (match[2] or ""):
            continue
        clauses = (clause.strip() for clause in match[1].split(","))
        if not all(_allows(clause, release) for clause in clauses):
            return requirement
    return ""


@cache
def _installed_release() -> Release | None:
    try:
        found = re.match(r"[0-9]+(\.[0-9]+)*", version("streamplug"))
    except PackageNotFoundError:  # a checkout on the path
        return None
    return None if found is None else _parse(found[0])


def _parse(text: str) -> Release:
    return tuple(map(int, text.split(".")))


def _allows(clause: str, release: Release) -> bool:
    """Return whether a clause allows a release.

    >>> [_allows(clause, (0, 1, 0)) for clause in (">=0.1", "==0.1.*", "~=0.1.0", "<0.1", "!=0.1", "")]
    [True, True, True, False, False, True]
    """
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        return True
    sign, other, wildcard = match[1], _parse(match[2]), match[3]
    if sign == "~=":
        return _order(release, other) >= 0 and release[: len(other) - 1] == other[:-1]
    if wildcard:
        starts = (*release, *(0,) * len(other))[: len(other)] == other
        return starts == (sign == "==")
    if sign in _COMPARISONS:
        return _COMPARISONS[sign](_order(release, other), 0)
    return (_order(release, other) == 0) == (sign == "==")


def _order(one: Release, other: Release) -> int:
    """Return whether a release is before another (-1), the same (0) or after it (1)."""
    for a, b in zip_longest(one, other, fillvalue=0):
        if a != b:
            return 1 if a > b else -1
    return 0
