"""Options of packing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.config import whole_number
from streamplug.errors import ConfigError, DataError, add_note


@dataclass(frozen=True)
class PackingOptions:
    """Options of packing; described in `PackedSamples`."""

    length: int
    size: str | Callable[[Any], int]
    open_bins: int = 64
    max_samples: int | None = None
    packs_per_epoch: int | None = None

    def __post_init__(self) -> None:
        for name in ("length", "open_bins", "max_samples", "packs_per_epoch"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        for name in ("length", "open_bins"):
            if getattr(self, name) is None:
                raise ConfigError(f"{name}=None: expected a whole number of at least 1")
        if not isinstance(self.size, str) and not callable(self.size):
            raise ConfigError(
                f"size={self.size!r:.80}: expected the name of a column, or a function of a sample"
            )

    def measure(self, sample: Any, location: Callable[[], str]) -> int:
        """Return the size of a sample; `location` describes where it is stored.

        Raises:
            DataError: If the size is no whole number in ``[1, length]``.
        """
        is_whole = True  # a length
        if isinstance(self.size, str):
            try:
                size: Any = len(sample[self.size])
            except (TypeError, KeyError, IndexError) as error:
                raise DataError(
                    f"{location()}: no length of the column {self.size!r} in {type(sample).__name__}: "
                    f"{error!r}; give size= the name of a column of the transformed samples, or a function"
                ) from error
        else:
            try:
                size = self.size(sample)
            except Exception as error:
                add_note(error, f"raised by size= for {location()}")
                raise
            is_whole = _is_whole_number(size)
        if is_whole and 1 <= size <= self.length:
            return int(size)
        raise DataError(
            f"{location()} has size {size!r:.80}; packs of length={self.length} take samples of a whole "
            "number from 1 to that: shorten it in transform=, leave it out by select= of the data set, "
            "or give a larger length="
        )

    def to_state(self) -> dict[str, Any]:
        """Return the options on which packs depend, for states."""
        names = ("length", "open_bins", "max_samples")
        return {name: getattr(self, name) for name in names}


def _is_whole_number(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return False
    # Arrays and tensors of any dtype and shape have `__index__`.
    try:
        is_scalar = hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0
        return is_scalar and bool(int(value) == value)
    except (TypeError, ValueError, OverflowError):
        return False
