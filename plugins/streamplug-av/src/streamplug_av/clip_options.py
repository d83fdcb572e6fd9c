"""Checks of the options of clips and windows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any

from streamplug.config import whole_number
from streamplug.errors import ConfigError


@dataclass(frozen=True)
class ClipOptions:
    """Options of a clip, checked; see `streamplug_av.Video.clip`."""

    frames: int
    stride: int = 1
    at: float | str = "center"

    def __post_init__(self) -> None:
        """Raise `ConfigError` if an option is invalid."""
        for name in ("frames", "stride"):
            if whole_number(name, getattr(self, name), 1) is None:
                raise ConfigError(f"{name}=None: must be a whole number of at least 1")
        check_at(self.at)


def check_at(at: Any) -> None:
    """Raise `ConfigError` unless `at` is a word or a time."""
    if at in ("center", "random"):
        return
    if not is_number(at) or at < 0:
        raise ConfigError(f"at={at!r}: expected 'center', 'random', or seconds of at least 0")


def check_not_random(at: Any, instead: str) -> None:
    """Raise `ConfigError` for ``"random"``: decoders have no generator."""
    check_at(at)
    if at == "random":
        raise ConfigError(
            f"at='random': a decoder has no random generator; pass {instead} as the loader's transform="
        )


def check_positive(**values: Any) -> None:
    """Raise `ConfigError` unless each value is a finite number above 0."""
    for name, value in values.items():
        if not is_number(value) or value <= 0:
            raise ConfigError(f"{name}={value!r}: expected a number above 0")


def checked_size(size: Any) -> tuple[int, int] | None:
    """Return a height and a width, or None; raise `ConfigError` for anything else."""
    if size is None:
        return None
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise ConfigError(f"size={size!r}: expected a height and a width, such as (224, 224)")
    height, width = (whole_number("size", side, 1) for side in size)
    if height is None or width is None:
        raise ConfigError(f"size={size!r}: expected a height and a width, such as (224, 224)")
    return height, width


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number, and not a flag."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    return math.isfinite(number)
