"""Validation of options of decoders and transforms."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug_image.resampler import RESAMPLERS

LAYOUTS = ("NHWC", "NCHW")


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 1 or more."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and int(value) >= 1


def check_choice(name: str, value: Any, known: Collection[str]) -> None:
    """Raise `ConfigError` if the value of an option is unknown."""
    if value not in known:
        raise ConfigError(f"{name}={value!r}: expected one of {', '.join(known)}")


def check_count(name: str, value: Any) -> None:
    """Raise `ConfigError` if the value of an option is no whole number of 1 or more."""
    if not is_count(value):
        raise ConfigError(f"{name}={value!r}: must be a whole number of 1 or more")


def check_size(size: Any) -> tuple[int, int]:
    """Return a height and a width as integers.

    Raises:
        ConfigError: If `size` is nothing of the kind.
    """
    if not isinstance(size, (tuple, list)) or len(size) != 2 or not all(map(is_count, size)):
        raise ConfigError(f"size={size!r}: expected a height and a width, such as (224, 224)")
    return int(size[0]), int(size[1])


def check_resampler(value: str) -> None:
    """Raise `ConfigError` if a library that resizes is unknown or not installed."""
    check_choice("resampler", value, RESAMPLERS)
    if value == "torch" and find_spec("torch") is None:
        raise ConfigError("resampler='torch': torch is not installed; choose resampler='pillow'")


def check_normalization(mean: Any, std: Any, channels: int) -> tuple[Any, Any]:
    """Return mean and deviation as tuples of floats, or None twice.

    Raises:
        ConfigError: If they are no numbers from 0 to 1, one for each channel, or only one of them is given.
    """
    if mean is None and std is None:
        return None, None
    found = []
    for name, value in (("mean", mean), ("std", std)):
        try:
            numbers = tuple(map(float, value))
        except (TypeError, ValueError):
            numbers = ()
        if len(numbers) != channels or not np.isfinite(numbers).all():
            raise ConfigError(
                f"{name}={value!r:.60}: expected {channels} numbers, one for each channel; mean= and std= "
                "go together"
            )
        if not 0 <= min(numbers) <= max(numbers) <= 1:
            raise ConfigError(
                f"{name}={value!r:.60}: expected shares of the largest value, from 0 to 1; divide those of "
                "pixels of 8 bits by 255"
            )
        found.append(numbers)
    if min(found[1]) <= 0:
        raise ConfigError(f"std={std!r:.60}: must be above 0")
    return found[0], found[1]
