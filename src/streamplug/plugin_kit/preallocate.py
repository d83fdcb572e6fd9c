"""Preallocation of disk blocks for a file that is about to be written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, BinaryIO

MAX_PREALLOCATED_BYTES = 256 << 20
"""No more is preallocated: the size is a server's claim."""

_KEEP_SIZE = (
    1  # FALLOC_FL_KEEP_SIZE of fallocate(2): how long the file is tells how much was written
)


def preallocate(file: BinaryIO, size: int | None) -> None:
    """Find room for a new file of so many bytes, if it is known how many, and the system can.

    Linux writes it in a tenth to a fifth less time then: else it looks for room page by page. Where
    there is none, writing will fail; this does not.
    """
    fallocate = _fallocate()
    if fallocate is not None and size is not None and 0 < size <= MAX_PREALLOCATED_BYTES:
        fallocate(file.fileno(), _KEEP_SIZE, 0, size)


@cache
def _fallocate() -> Callable[..., Any] | None:
    """Return fallocate(2): unlike posix_fallocate(3), it writes nothing where the file system lacks it."""
    if sys.platform != "linux":
        return None
    import ctypes

    function = ctypes.CDLL(None).fallocate
    function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    return function
