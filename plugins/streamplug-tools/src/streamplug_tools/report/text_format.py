"""Formatting of numbers for people."""

from __future__ import annotations

from collections.abc import Callable

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def number(value: float) -> str:
    """Format a number with four significant digits, or all digits of an integer."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}"


def size(count: float) -> str:
    """Format a number of bytes with a suitable unit."""
    power = 0
    while count >= 999.95 and power < len(_UNITS) - 1:
        count /= 1000
        power += 1
    if not power:
        return "1 byte" if count == 1 else f"{number(count)} bytes"
    return f"{count:.3g} {_UNITS[power]}" if count < 100 else f"{count:,.0f} {_UNITS[power]}"


def size_format(minimum: float, maximum: float) -> Callable[[float], str]:
    """Return `size`, or a function that shows all digits if `size` does not tell two numbers apart."""
    if minimum == maximum or size(minimum) != size(maximum):
        return size
    return lambda count: f"{count:,.0f} bytes"


def percent(share: float) -> str:
    """Format a fraction as a percentage."""
    return f"{share:.0%}"


def cut(text: str, characters: int) -> str:
    """Truncate a text."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def many(count: int, one: str, more: str = "") -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{count:,} {one if count == 1 else more or one + 's'}"
