"""Has a file system find the room for a file before that is written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, BinaryIO

_MOST = 256 << 20
"""A file that is said to be larger gets none: too much of the disk would be taken on a server's word."""

_KEEP_SIZE = (
    1  # FALLOC_FL_KEEP_SIZE of fallocate(2): how long the file is tells how much was written
)


def reserve(file: BinaryIO, size: int | None) -> None:
    """Find room for a new file of so many bytes, if it is known how many, and the system can.

    Linux writes it in a tenth to a fifth less time then: else it looks for room page by page. Where
    there is none, writing will fail; this does not.
    """
    fallocate = _fallocate()
    if fallocate is not None and size is not None and 0 < size <= _MOST:
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
