"""Parsing of single options: sizes such as `64mb`, counts, times, flags."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from fractions import Fraction
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from streamplug.errors import ConfigError

_UNITS = ("b", "kb", "mb", "gb", "tb", "pb", "eb", "zb", "yb")
_UNIT_BYTES = {unit: 1024**power for power, unit in enumerate(_UNITS)}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)\s*", re.IGNORECASE)


def check_names(what: str, where: str, columns: Iterable[str], names: Collection[str]) -> None:
    """Check that columns exist; suggest the nearest name if one does not.

    Args:
        what: Parameter and value, for errors.
        where: Name of the data set, for errors.
        columns: Requested columns.
        names: Existing columns.
    """
    if missing := sorted(set(columns) - set(names)):
        matches = difflib.get_close_matches(missing[0], names, 1, 0.5)
        hint = f". Did you mean {matches[0]!r}?" if matches else ""
        raise ConfigError(f"{what}: {where} has no {missing}, only {sorted(names)}{hint}")


def parse_bytes(value: float | str, what: str) -> int:
    """Return a number of bytes, from a whole number or text such as ``"64mb"`` (units of 1,024)."""
    return _parse(value, what, _UNIT_BYTES, "bytes, such as 67108864 or '64mb'")


def parse_count(value: float | str, what: str) -> int:
    """Return a number of samples, from a whole number or text such as ``"100k"`` (units of 1,000)."""
    return _parse(value, what, _COUNTS, "a count, such as 100000 or '100k'")


def _parse(value: float | str, what: str, units: dict[str, int], expected: str) -> int:
    # Floats, too, because 1e9 is one.
    is_whole_float = isinstance(value, (float, np.floating)) and float(value).is_integer()
    if (is_integer(value) or is_whole_float) and value >= 0:  # type: ignore[operator]  # it is a number
        return int(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    unit = match[2].lower() if match else ""
    if match and (unit in units if unit else Fraction(match[1]).denominator == 1):
        return int(Fraction(match[1]) * units.get(unit, 1))
    raise ConfigError(f"{what}={value!r}: expected {expected}")


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer, also one of NumPy's, but no bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def whole_number(name: str, value: Any, lowest: int) -> Any:
    """Return an integer, also from NumPy's types; None stays None."""
    if value is None:
        return None
    if is_integer(value) and value >= lowest:
        return int(value)
    raise ConfigError(f"{name}={value!r:.60}: must be a whole number of at least {lowest}")


def check_seconds(name: str, value: Any) -> None:
    """Check that a value is None or a number of seconds above 0."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not (number and value > 0):
        raise ConfigError(f"{name}={value!r:.60}: must be a number of seconds above 0")


def parse_seconds(value: float | str, what: str) -> float:
    """Return a time in seconds, from a number or text such as ``"10m"`` (s, m, h)."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and 0 <= value < float("inf"):  # type: ignore[operator]  # it is a number
        return float(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match and match[2].lower() in _TIMES:
        return float(Fraction(match[1]) * _TIMES[match[2].lower()])
    raise ConfigError(
        f"{what}={value!r:.60}: expected a time in seconds, such as 600, or text such as '10m'"
    )


def check_flags(**flags: Any) -> None:
    """Check that flags are True, False or None; text such as ``"no"`` would count as True."""
    for name, value in flags.items():
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ConfigError(f"{name}={value!r:.60}: must be True or False")
