"""Linux system calls that Python does not offer, for what works without them, too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def system_call(name: str, *types: str) -> Callable[..., Any] | None:
    """Return a function of the C library; None where there is none, or Python cannot call it.

    Args:
        name: Name of the function.
        types: Names in `ctypes` of the types of its arguments.
    """
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = getattr(ctypes.CDLL(None), name)
    except (ImportError, OSError, AttributeError):  # Python without ctypes, or linked statically
        return None
    function.argtypes = [getattr(ctypes, kind) for kind in types]
    return function  # type: ignore[no-any-return]  # of getattr
