"""Which numbers of numpy torch has as well."""

from __future__ import annotations

from typing import Any

import numpy as np

_LARGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Bytes of torch's largest dtype of each of numpy's kinds."""


def has_torch_dtype(values: Any) -> bool:
    """Say whether these are numbers that torch has."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind in _LARGEST
        and values.dtype.itemsize <= _LARGEST[values.dtype.kind]
    )
