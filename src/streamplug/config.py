"""Reads what users write: sizes, counts, and the world that a launcher describes."""

from __future__ import annotations

import os
import re
from fractions import Fraction

from streamplug.errors import ConfigError
from streamplug.types import World

_BYTES = {unit: 1024**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb", "pb"))}
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(value: int | str, what: str) -> int:
    """Return a number of bytes: an int, or text such as ``"64mb"`` (units of 1,024).

    Args:
        value: What the user gave.
        what: Name of the parameter, for errors.

    Raises:
        ConfigError: If it is not a size.
    """
    return _parse(value, what, _BYTES, "bytes, such as 67108864 or '64mb'")


def parse_count(value: int | str, what: str) -> int:
    """Return a number of samples: an int, or text such as ``"100k"`` (units of 1,000).

    Raises:
        ConfigError: If it is not a count.
    """
    return _parse(value, what, _COUNTS, "a count, such as 100000 or '100k'")


def _parse(value: int | str, what: str, units: dict[str, int], expected: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match and (match[2].lower() in units or not match[2]):
        return int(Fraction(match[1]) * units.get(match[2].lower(), 1))
    raise ConfigError(f"{what}={value!r}: expected {expected}")


def detect_world() -> World:
    """Return the world that a launcher such as torchrun describes in the environment.

    Reads ``RANK``, ``WORLD_SIZE`` and ``LOCAL_WORLD_SIZE``; a single rank without them.

    Raises:
        ConfigError: If they are not whole numbers or contradict each other.
    """
    ranks = _env_int("WORLD_SIZE", 1)
    local = _env_int("LOCAL_WORLD_SIZE", ranks)
    rank = _env_int("RANK", 0)
    if local < 1 or ranks % local:
        raise ConfigError(
            f"WORLD_SIZE={ranks} is not a multiple of LOCAL_WORLD_SIZE={local}; pass world= explicitly"
        )
    return World(nodes=ranks // local, ranks_per_node=local, rank=rank)


def _env_int(name: str, default: int) -> int:
    text = os.environ.get(name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"environment variable {name}={text!r} is not a whole number") from None
