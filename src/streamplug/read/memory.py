"""One buffer over bytes in several places of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamplug.interfaces import GatherBuffer
from streamplug.types import Bytes1D, Int64


class Span:
    """Range of addresses of this process, which NumPy sees as a read-only array."""

    def __init__(self, start: int, stop: int) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (start, True),
            "shape": (stop - start,),
            "typestr": "|u1",
        }


def spanned(buffers: Sequence[Bytes1D]) -> tuple[GatherBuffer, Int64]:
    """Return one buffer that spans several others without a copy, and the offset of each in it.

    It lets one call gather rows of all of them. The bytes between them must not be accessed: they may not be
    mapped. The caller keeps `buffers` alive, and checks that rows lie inside them. At least one buffer is
    needed; all are uint8, contiguous and not empty.
    """
    starts = [buffer.__array_interface__["data"][0] for buffer in buffers]
    first = min(starts)
    end = max(start + len(buffer) for start, buffer in zip(starts, buffers))
    return GatherBuffer(np.asarray(Span(first, end))), np.array(starts, np.int64) - first
