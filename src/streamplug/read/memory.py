"""Bytes in several places of memory, addressed as one buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import GatherBuffer
from streamplug.types import Bytes1D, Int64


class Span:
    """A stretch of this process's memory, for numpy to see as an array that nobody may write to."""

    def __init__(self, start: int, stop: int) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (start, True),
            "shape": (stop - start,),
            "typestr": "|u1",
        }


def spanned(buffers: Sequence[Bytes1D]) -> tuple[GatherBuffer, Int64]:
    """Return a buffer in which several others lie, and where in it each begins, without copying.

    So that one call can gather rows of all of them. What lies between them must not be touched: not
    all of it is memory. Whoever uses it keeps `buffers` alive, and checks that rows lie inside them.

    Args:
        buffers: uint8, contiguous, none of them empty; at least one.
    """
    starts = [buffer.__array_interface__["data"][0] for buffer in buffers]
    first = min(starts)
    end = max(start + len(buffer) for start, buffer in zip(starts, buffers))
    return GatherBuffer(np.asarray(Span(first, end))), np.array(starts, np.int64) - first
