"""Texts of all shards, one kind per column, without a Python object for each.

A column is asked for the text of one shard at a time. Names that count up, and digests of one length, take
no more room than they must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, TypeVar

import numpy as np

from streamplug.errors import InvalidIndexError
from streamplug.types import Bytes1D, Int64

T_co = TypeVar("T_co", covariant=True)

MAX_DIGITS = 17
"""Of the number in a name, so that all numbers of a data set have 64 bits."""

_AT_ONCE = 1 << 16
_NUMBER = re.compile("[0-9]+")
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)


class Lookup(Protocol[T_co]):
    """What has a value for every shard."""

    def __getitem__(self, shard: int, /) -> T_co:
        """Return the value of one shard."""


@dataclass(frozen=True, slots=True)
class Same:
    """The same number for every shard.

    Attributes:
        number: It.
    """

    number: int

    def __getitem__(self, shard: int) -> int:
        return self.number


@dataclass(frozen=True, slots=True)
class Absent:
    """No text for any shard."""

    def __getitem__(self, shard: int) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Names that count up, such as ``shard.00000.mds``.

    Attributes:
        prefix: What comes before the number.
        digits: To how many digits the number is filled up with zeros.
        suffix: What comes after it.
        first: The number of shard 0.
    """

    prefix: str
    digits: int
    suffix: str
    first: int = 0

    def __getitem__(self, shard: int) -> str:
        return f"{self.prefix}{self.first + shard:0{self.digits}d}{self.suffix}"


@dataclass(frozen=True, slots=True)
class HexTexts:
    """Lower-case hexadecimal texts of one length.

    Attributes:
        data: Their bytes, uint8, shape ``[shards, bytes]``.
    """

    data: np.ndarray[Any, np.dtype[np.uint8]]

    def __getitem__(self, shard: int) -> str:
        return bytes(self.data[shard]).hex()


@dataclass(frozen=True, slots=True)
class Texts:
    """Any texts.

    Attributes:
        bounds: Where each begins, and the end of the last, int64, shape ``[shards + 1]``.
        text: All of them in UTF-8, back to back.
    """

    bounds: Int64
    text: Bytes1D

    def __getitem__(self, shard: int) -> str:
        start, stop = self.bounds[shard : shard + 2].tolist()
        if not 0 <= start <= stop <= len(self.text):
            raise InvalidIndexError(f"its names are damaged: bytes {start} to {stop}")
        return bytes(self.text[start:stop]).decode(errors="replace")


TextColumn = Absent | Numbered | HexTexts | Texts
"""Any of the columns above."""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of files.

    Attributes:
        columns: Digests by name of the algorithm; an empty text says that a file has none.
    """

    columns: Mapping[str, TextColumn]

    def __getitem__(self, shard: int) -> Mapping[str, str]:
        found = {name: column[shard] for name, column in self.columns.items()}
        return {name: digest for name, digest in found.items() if digest}


# -- making them ----------------------------------------------------------------------


class Numbers:
    """A column of whole numbers that grows."""

    def __init__(self) -> None:
        self.count = 0
        self._pending: list[int] = []
        self._parts: list[Int64] = []

    def put(self, at: int, values: Sequence[int]) -> None:
        """Append values for the shards from `at` on; those before that have none get 0."""
        gap = at - self.count
        if gap > _AT_ONCE:
            self._parts += [self._taken(), np.zeros(gap, np.int64)]
        elif gap:
            self._pending += repeat(0, gap)
        self._pending += values
        self.count = at + len(values)
        if len(self._pending) >= _AT_ONCE:
            self._parts.append(self._taken())

    def _taken(self) -> Int64:
        pending, self._pending = self._pending, []
        return np.array(pending, np.int64)

    def finish(self, count: int) -> Int64:
        """Return the column of so many shards."""
        self.put(count, ())
        return np.concatenate([*self._parts, self._taken()])


class GrowingTexts:
    """A column of texts that grows."""

    def __init__(self) -> None:
        self._lengths = Numbers()
        self._text = bytearray()

    def put(self, at: int, values: Sequence[bytes]) -> None:
        """Append texts for the shards from `at` on; those before that have none get an empty one."""
        self._lengths.put(at, list(map(len, values)))
        self._text += b"".join(values)

    def finish(self, count: int) -> TextColumn:
        """Return the column of so many shards, in the form that takes the least room."""
        lengths = self._lengths.finish(count)
        text = np.frombuffer(self._text, np.uint8)
        if not len(text):
            return Absent()
        return _hexadecimal(lengths, text) or _numbered(lengths, text) or _any(lengths, text)


def _any(lengths: Int64, text: Bytes1D) -> Texts:
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return Texts(bounds, text)


_NIBBLES = np.full(256, 255, np.uint8)
_NIBBLES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def _hexadecimal(lengths: Int64, text: Bytes1D) -> HexTexts | None:
    width = int(lengths[0])
    if width % 2 or width == 0 or (lengths != width).any():
        return None
    data = np.empty(len(text) // 2, np.uint8)
    for start in range(0, len(data), 1 << 20):
        part = _NIBBLES[text[2 * start : 2 * (start + (1 << 20))]]
        if (part > 15).any():
            return None
        data[start : start + (1 << 20)] = part[::2] << 4 | part[1::2]
    return HexTexts(data.reshape(len(lengths), width // 2))


def _numbered(lengths: Int64, text: Bytes1D) -> Numbered | None:
    """Return the names as a count, if that is what they are."""
    first = bytes(text[: lengths[0]]).decode(errors="replace")
    for number in reversed(list(_NUMBER.finditer(first))):
        start, stop = number.span()
        column = Numbered(first[:start], stop - start, first[stop:], int(number[0]))
        if stop - start <= MAX_DIGITS and _counts(column, lengths, text):
            return column
    return None


def _counts(column: Numbered, lengths: Int64, text: Bytes1D) -> bool:
    """Say whether names are those of a column; most that are not differ in the first two."""
    fixed = len(f"{column.prefix}{column.suffix}".encode())
    name = f"{column.prefix}%0{column.digits}d{column.suffix}".encode()
    name = name if b"%" not in (column.prefix + column.suffix).encode() else b""
    written = begin = 0
    while name and begin < len(lengths):
        end = min(begin + (_AT_ONCE if begin else 2), len(lengths))
        numbers = range(column.first + begin, column.first + end)
        digits = np.searchsorted(_POWERS, np.arange(numbers.start, numbers.stop), side="right") + 1
        joined = name * len(numbers) % tuple(numbers)
        same = np.array_equal(np.maximum(digits, column.digits) + fixed, lengths[begin:end])
        if not same or bytes(text[written : written + len(joined)]) != joined:
            return False
        written += len(joined)
        begin = end
    return bool(name)
