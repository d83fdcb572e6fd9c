"""Packing of lists of bytes or strings into one array for transfer to another process.

In ``tests/benchmarks/bench_read.py`` the loader of JPEGs with two workers reads 37 % fewer samples per second
of processor time without it.
"""

from __future__ import annotations

import sys
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MIN_MEAN_LENGTH = 512  # bytes or characters per value; pickling a list of shorter ones is faster


class StringLayout(NamedTuple):
    """Division of an array into the values of a list."""

    lengths: list[int]  # bytes or characters of each value
    texts: bool  # whether the values are strings

    def values(self, data: NDArray[np.uint8]) -> list[bytes] | list[str]:
        """Return copies of the values in `data`."""
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        ends = pairwise(accumulate(self.lengths, initial=0))
        if self.texts:
            whole = str(view, "utf-8", _ERRORS)
            return [whole[start:stop] for start, stop in ends]
        return [view[start:stop].tobytes() for start, stop in ends]


class PackedStrings(NamedTuple):
    """Concatenated values of a list, and their division."""

    data: NDArray[np.uint8]
    cuts: StringLayout


_ERRORS = "surrogatepass"  # strings that a transform returns may contain lone surrogates


class StringList(list[Any]):
    """Large bytes or strings of a batch that a worker passes on; the receiver gets a plain list."""

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def are_large(values: list[Any]) -> bool:
    """Return whether bytes or strings are long enough for packing to pay."""
    return sum(map(len, values)) >= _MIN_MEAN_LENGTH * len(values)


def pack_strings(values: Any) -> PackedStrings | None:
    """Concatenate a list of only bytes or only strings; return None for other or small values."""
    if type(values) not in (list, StringList) or not values or type(values[0]) not in (bytes, str):
        return None
    texts = type(values[0]) is str
    if set(map(type, values)) != {type(values[0])}:
        return None
    if not are_large(values):
        return None
    lengths = list(map(len, values))
    data = "".join(values).encode("utf-8", _ERRORS) if texts else b"".join(values)
    return PackedStrings(np.frombuffer(data, np.uint8), StringLayout(lengths, texts))


def message_bytes(values: Any) -> int:
    """Return the approximate bytes of an array or list in a message; `sys.maxsize` for other types."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    if type(values) not in (list, StringList):
        return sys.maxsize
    return len(values) * sys.getsizeof(values[0]) if values else 0
