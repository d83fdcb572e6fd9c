"""Parsers of numbers of bytes and samples, and of lists."""

from __future__ import annotations

from collections.abc import Mapping

from streamplug.errors import ConfigError

_UNIT_BYTES = {
    unit: 1024**power
    for power, unit in enumerate(("kb", "mb", "gb", "tb", "pb", "eb", "zb", "yb"), 1)
}
_COUNTS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def bytes_to_int(bytes_str: float | str) -> int:
    """Return a number of bytes, such as of ``"64mb"``; the fraction of a number is cut off.

    Args:
        bytes_str: A number, or text: a number and a unit, of which kb is 1,024 bytes.

    Raises:
        ConfigError: If the text is no number of bytes.
    """
    return _parse_number(bytes_str, _UNIT_BYTES, plain_unit="b")


def number_abbrev_to_int(abbrev_str: float | str) -> int:
    """Return a number of samples, such as of ``"100k"``; the fraction of a number is cut off.

    Args:
        abbrev_str: A number, or text: a number and a unit, of which k is 1,000 samples.

    Raises:
        ConfigError: If the text is no number of samples.
    """
    return _parse_number(abbrev_str, _COUNTS)


def get_list_arg(text: str) -> list[str]:
    """Split a text at commas; an empty text has no parts."""
    return text.split(",") if text else []


def _parse_number(value: float | str, units: Mapping[str, int], *, plain_unit: str = "") -> int:
    """Parse a number with one of `units`, or a whole number with `plain_unit` or no unit."""
    if isinstance(value, (int, float)):
        return int(value)
    text = value.lower().strip()
    number = _with_unit(text, units, value)
    if number is None and text.removesuffix(plain_unit).isdecimal():
        number = int(text.removesuffix(plain_unit))
    if number is None:
        raise _unreadable(value, [*filter(None, [plain_unit]), *units])
    return number


def _with_unit(text: str, units: Mapping[str, int], value: str) -> int | None:
    for unit, size in units.items():
        if text.endswith(unit):
            try:
                return int(float(text.removesuffix(unit)) * size)
            except (ValueError, OverflowError):  # no number, or an infinite one
                raise _unreadable(value, list(units)) from None
    return None


def _unreadable(value: str, units: list[str]) -> ConfigError:
    return ConfigError(
        f"Unsupported value/suffix {value!r:.60}: expected a number and one of {units}"
    )
