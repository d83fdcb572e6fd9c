"""Strict equality for conformance tests: types, NaN and arrays.

Content is compared by it, not by ``==``: where the environment has ``CI``, pytest may look for half an hour
for the differences of two values of 10 kB.
"""

from __future__ import annotations

import numpy as np


def same(a: object, b: object) -> bool:
    """Return whether two values have the same type and are equal in every part.

    NaN equals NaN, and 0.0 differs from -0.0; arrays must agree in dtype, shape and all bits. Objects of
    which ``==`` says nothing, as of classes without it or of SciPy's sparse arrays, are equal if what would
    be pickled of them is the same.
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
    answer: object = a == b
    if isinstance(answer, (bool, np.bool_)) and (answer or type(a).__eq__ is not object.__eq__):
        return bool(answer)
    try:
        return same(a.__reduce_ex__(4), b.__reduce_ex__(4))
    except TypeError:  # it cannot be pickled
        return False
