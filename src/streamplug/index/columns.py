"""Columns of an index: strings and numbers of all shards, without a Python object for each."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from streamplug.types import Bytes1D, Int64

T_co = TypeVar("T_co", covariant=True)


class Lookup(Protocol[T_co]):
    """Lookup of a value by shard."""

    def __getitem__(self, shard: int, /) -> T_co:
        """Return the value of a shard."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A string for each shard, empty if missing: concatenated UTF-8 with offsets, shape ``[shards + 1]``."""

    offsets: Int64
    data: Bytes1D

    def __getitem__(self, shard: int) -> str:
        start, stop = self.offsets[shard : shard + 2].tolist()
        return self.data[start:stop].tobytes().decode(errors="replace")

    def texts(self) -> list[bytes]:
        """Return the strings of all shards."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[start:stop] for start, stop in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class DigestColumns:
    """Digests of files by algorithm; a missing digest is an empty string."""

    columns: Mapping[str, TextColumn]

    def __getitem__(self, shard: int) -> Mapping[str, str]:
        digests = {name: column[shard] for name, column in self.columns.items()}
        return {name: digest for name, digest in digests.items() if digest}


class NumberColumnBuilder:
    """Builder of an int64 column."""

    def __init__(self) -> None:
        self._values = array("q")

    def put(self, start: int, values: Sequence[int]) -> None:
        """Append values from shard `start` on; earlier shards without a value get 0."""
        missing = start - len(self._values)
        self._values.frombytes(bytes(missing * self._values.itemsize))
        self._values.extend(values)

    def build(self, count: int) -> Int64:
        """Return the column of `count` shards."""
        self.put(count, ())
        return np.array(self._values, np.int64)


class TextColumnBuilder:
    """Builder of a column of strings."""

    def __init__(self) -> None:
        self._lengths = NumberColumnBuilder()
        self._data = bytearray()

    def put(self, start: int, values: Sequence[bytes]) -> None:
        """Append strings from shard `start` on; earlier shards without one get an empty string."""
        self._lengths.put(start, list(map(len, values)))
        self._data += b"".join(values)

    def build(self, count: int) -> TextColumn:
        """Return the column of `count` shards."""
        return TextColumn(
            offsets_from_sizes(self._lengths.build(count)), np.frombuffer(self._data, np.uint8)
        )


def offsets_from_sizes(sizes: Int64) -> Int64:
    """Return the offsets of items and their total size, shape ``[n + 1]``, from sizes, shape ``[n]``."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
