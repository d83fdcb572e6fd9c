"""Numbers of bytes and of samples as text, read as mosaicml-streaming reads them."""

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
    found = _with_unit(text, _BYTES, bytes_str)
    if found is None and text.removesuffix("b").isdigit():
        found = int(text.removesuffix("b"))
    if found is None:
        raise _unreadable(bytes_str, ["b", *_BYTES])
    return found


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
    found = _with_unit(text, _COUNTS, abbrev_str)
    if found is None and text.isdigit():
        found = int(text)
    if found is None:
        raise _unreadable(abbrev_str, list(_COUNTS))
    return found


def _with_unit(text: str, units: Mapping[str, int], given: str) -> int | None:
    for unit, size in units.items():
        if text.endswith(unit):
            try:
                return int(float(text.removesuffix(unit)) * size)
            except ValueError:
                raise _unreadable(given, list(units)) from None
    return None


def _unreadable(given: str, units: list[str]) -> ConfigError:
    return ConfigError(
        f"Unsupported value/suffix {given!r:.60}: expected a number and one of {units}"
    )
