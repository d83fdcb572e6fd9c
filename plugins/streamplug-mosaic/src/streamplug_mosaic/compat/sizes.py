"""Parsers of numbers of bytes and samples."""

from __future__ import annotations

from collections.abc import Mapping

from streamplug.errors import ConfigError

_BYTES = {
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
    if isinstance(bytes_str, (int, float)):
        return int(bytes_str)
    text = bytes_str.lower().strip()
    number = _with_unit(text, _BYTES, bytes_str)
    if number is None and text.removesuffix("b").isdigit():
        number = int(text.removesuffix("b"))
    if number is None:
        raise _unreadable(bytes_str, ["b", *_BYTES])
    return number


def number_abbrev_to_int(abbrev_str: float | str) -> int:
    """Return a number of samples, such as of ``"100k"``; the fraction of a number is cut off.

    Args:
        abbrev_str: A number, or text: a number and a unit, of which k is 1,000 samples.

    Raises:
        ConfigError: If the text is no number of samples.
    """
    if isinstance(abbrev_str, (int, float)):
        return int(abbrev_str)
    text = abbrev_str.lower().strip()
    number = _with_unit(text, _COUNTS, abbrev_str)
    if number is None and text.isdigit():
        number = int(text)
    if number is None:
        raise _unreadable(abbrev_str, list(_COUNTS))
    return number


def _with_unit(text: str, units: Mapping[str, int], value: str) -> int | None:
    for unit, size in units.items():
        if text.endswith(unit):
            try:
                return int(float(text.removesuffix(unit)) * size)
            except ValueError:
                raise _unreadable(value, list(units)) from None
    return None


def _unreadable(value: str, units: list[str]) -> ConfigError:
    return ConfigError(
        f"Unsupported value/suffix {value!r:.60}: expected a number and one of {units}"
    )
