"""Strict equality for tests of encodings: types, NaN and arrays."""

from __future__ import annotations

import numpy as np


def same(a: object, b: object) -> bool:
    """Return whether two values have the same type and are equal in every part.

    NaN equals NaN, and 0.0 differs from -0.0; arrays must agree in dtype, shape and all bits.
    """
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, (float, complex, np.generic)):
        return repr(a) == repr(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b
