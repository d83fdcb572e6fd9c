"""NumPy dtypes that torch supports."""

from __future__ import annotations

from typing import Any

import numpy as np

_MAX_ITEM_BYTES = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Item size in bytes of torch's largest dtype, by NumPy kind."""


def has_torch_dtype(values: Any) -> bool:
    """Return whether `values` is an array of a dtype that torch supports."""
    return (
        isinstance(values, np.ndarray)
        and values.dtype.kind in _MAX_ITEM_BYTES
        and values.dtype.itemsize <= _MAX_ITEM_BYTES[values.dtype.kind]
    )
