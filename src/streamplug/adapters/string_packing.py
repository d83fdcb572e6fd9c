"""Lists of bytes, or of texts, as one array, to be handed to another process as arrays are."""

from __future__ import annotations

import sys
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SMALL = 512
"""Bytes, or characters, per value below which it is quicker to pickle a list."""


class StringLayout(NamedTuple):
    """How an array is cut into the values of a list.

    Attributes:
        lengths: Bytes or characters of each.
        texts: Whether they are texts.
    """

    lengths: list[int]
    texts: bool

    def values(self, data: NDArray[np.uint8]) -> list[bytes] | list[str]:
        """Return the values; they hold nothing of the array."""
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        ends = pairwise(accumulate(self.lengths, initial=0))
        if self.texts:
            whole = str(view, "utf-8", _ERRORS)
            return [whole[start:stop] for start, stop in ends]
        return [view[start:stop].tobytes() for start, stop in ends]


class PackedStrings(NamedTuple):
    """The values of a list, end to end, and how to cut them.

    Attributes:
        data: All of their bytes.
        cuts: How.
    """

    data: NDArray[np.uint8]
    cuts: StringLayout


_ERRORS = "surrogatepass"  # what a transform makes of a text need not be one that UTF-8 can hold


def pack_strings(values: Any) -> PackedStrings | None:
    """Join a list of nothing but bytes, or nothing but texts, unless they are small."""
    if type(values) is not list or not values or type(values[0]) not in (bytes, str):
        return None
    texts = type(values[0]) is str
    if set(map(type, values)) != {type(values[0])}:
        return None
    lengths = list(map(len, values))
    if sum(lengths) < _SMALL * len(values):
        return None
    data = "".join(values).encode("utf-8", _ERRORS) if texts else b"".join(values)
    return PackedStrings(np.frombuffer(data, np.uint8), StringLayout(lengths, texts))


def message_bytes(values: Any) -> int:
    """Return about how many bytes an array or a list takes in a message; what is neither takes many."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    if type(values) is not list:
        return sys.maxsize
    return len(values) * sys.getsizeof(values[0]) if values else 0
