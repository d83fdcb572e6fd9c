"""Columns of an index: texts and numbers of all shards, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from streamplug.types import Bytes1D, Int64

T_co = TypeVar("T_co", covariant=True)


class Lookup(Protocol[T_co]):
    """A value for every shard."""

    def __getitem__(self, shard: int, /) -> T_co:
        """Return the value of one shard."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text for every shard; an empty one where there is none.

    Attributes:
        offsets: Where each begins, and the end of the last, int64, shape ``[shards + 1]``.
        data: All of them in UTF-8, back to back.
    """

    offsets: Int64
    data: Bytes1D

    def __getitem__(self, shard: int) -> str:
        start, stop = self.offsets[shard : shard + 2].tolist()
        return self.data[start:stop].tobytes().decode(errors="replace")


@dataclass(frozen=True, slots=True)
class DigestColumns:
    """The digests of files.

    Attributes:
        columns: Digests by name of the algorithm; an empty text where a file has none.
    """

    columns: Mapping[str, TextColumn]

    def __getitem__(self, shard: int) -> Mapping[str, str]:
        digests = {name: column[shard] for name, column in self.columns.items()}
        return {name: digest for name, digest in digests.items() if digest}


class NumberColumnBuilder:
    """Appends to a column of int64."""

    def __init__(self) -> None:
        self._values = array("q")

    def put(self, start: int, values: Sequence[int]) -> None:
        """Append values for the shards from `start` on; shards before that without a value get 0."""
        missing = start - len(self._values)
        self._values.frombytes(bytes(missing * self._values.itemsize))
        self._values.extend(values)

    def build(self, count: int) -> Int64:
        """Return the column of `count` shards."""
        self.put(count, ())
        return np.array(self._values, np.int64)


class TextColumnBuilder:
    """Appends to a column of texts."""

    def __init__(self) -> None:
        self._lengths = NumberColumnBuilder()
        self._data = bytearray()

    def put(self, start: int, values: Sequence[bytes]) -> None:
        """Append texts for the shards from `start` on; shards before that without a text get an empty one."""
        self._lengths.put(start, list(map(len, values)))
        self._data += b"".join(values)

    def build(self, count: int) -> TextColumn:
        """Return the column of `count` shards."""
        return TextColumn(
            offsets_from_sizes(self._lengths.build(count)), np.frombuffer(self._data, np.uint8)
        )


def offsets_from_sizes(sizes: Int64) -> Int64:
    """Return where each of some items begins, and the total: shape ``[n + 1]``, from their sizes ``[n]``."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
