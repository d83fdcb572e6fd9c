"""Orders of samples, for data sets larger than memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from streamplug.interfaces import Permutation
from streamplug.plugin import make, open_storage
from streamplug.transfer import call_with_retries, map_disk_errors
from streamplug.types import ColumnValues, Int64

_ID = np.dtype("<i8")
_IDS_PER_BLOCK = 1 << 16
"""Ids that are read from a storage at once."""
NO_SAMPLE = -1
"""Id that stands for no sample, such as that of a key without a partner."""


class SelectionOrder(Protocol):
    """Samples in an order; picklable.

    Attributes:
        size: Number of samples.
    """

    @property
    def size(self) -> int:
        """Number of samples."""

    def ids(self, begin: int, end: int) -> Int64:
        """Return the samples at positions ``[begin, end)``."""


@dataclass(frozen=True)
class SequentialOrder:
    """Consecutive samples.

    Attributes:
        size: Number of samples.
        first: First sample.
    """

    size: int
    first: int = 0

    def ids(self, begin: int, end: int) -> Int64:
        return np.arange(self.first + begin, self.first + end, dtype=np.int64)


@dataclass(frozen=True)
class ShuffledOrder:
    """All samples in a random order, computed from a seed.

    Attributes:
        size: Number of samples.
        seed: Shuffle seed.
    """

    size: int
    seed: int

    def ids(self, begin: int, end: int) -> Int64:
        return _shuffle(self.size, self.seed).at(0, np.arange(begin, end, dtype=np.int64))


@lru_cache(8)
def _shuffle(size: int, seed: int) -> Permutation:
    order: Permutation = make("shuffle", "global").order(
        np.array([0, size]), canonical_nodes=1, seed=seed, epoch=0, block_size=1
    )
    return order


@dataclass(frozen=True)
class ListedOrder:
    """Samples listed in a file, which may be larger than memory.

    Attributes:
        path: File of little-endian int64 ids.
    """

    path: Path

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.path.stat().st_size // _ID.itemsize

    def ids(self, begin: int, end: int) -> Int64:
        with self.path.open("rb") as file:
            return np.fromfile(file, _ID, max(end - begin, 0), offset=begin * _ID.itemsize).astype(
                np.int64
            )


class SharedOrder:
    """Samples listed in an object of a storage, which all machines can read.

    Attributes:
        size: Number of samples.
    """

    def __init__(
        self, location: str, key: str, size: int, storage_options: Mapping[str, Any] | None
    ) -> None:
        """Store where the object of little-endian int64 ids is."""
        self.size = size
        self._location, self._key, self._options = location, key, storage_options
        self._last: tuple[int, Int64] = -1, np.empty(0, np.int64)

    def ids(self, begin: int, end: int) -> Int64:
        blocks = range(begin // _IDS_PER_BLOCK, -(-end // _IDS_PER_BLOCK))
        if not blocks:
            return np.empty(0, np.int64)
        ids = np.concatenate([self._block(number) for number in blocks])
        first = blocks[0] * _IDS_PER_BLOCK
        return ids[begin - first : end - first]

    def _block(self, number: int) -> Int64:
        last, ids = self._last  # read once, as threads may share the order
        if last != number:
            start = number * _IDS_PER_BLOCK
            stop = min(start + _IDS_PER_BLOCK, self.size)
            bounds = start * _ID.itemsize, stop * _ID.itemsize
            storage = open_storage(self._location, self._options)
            data = call_with_retries(partial(storage.read_range, self._key, *bounds))
            ids = np.frombuffer(data, _ID).astype(np.int64)
            self._last = number, ids
        return ids


@dataclass(frozen=True)
class GaplessOrder:
    """Another order with sample 0 in place of `NO_SAMPLE`, so that it can be read.

    Attributes:
        order: The other order.
    """

    order: SelectionOrder

    @property
    def size(self) -> int:
        """Number of samples."""
        return self.order.size

    def ids(self, begin: int, end: int) -> Int64:
        ids = self.order.ids(begin, end)
        return np.where(ids == NO_SAMPLE, 0, ids)


def with_gaps(values: ColumnValues, ids: Int64) -> ColumnValues:
    """Return the values of samples with None for each `NO_SAMPLE`."""
    gaps = (ids == NO_SAMPLE).tolist()
    if not any(gaps):
        return values
    return [None if gap else value for gap, value in zip(gaps, values)]


class OrderFiles:
    """Writer of the files of several `ListedOrder`."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Create a file in a folder for each name."""
        self.orders = {name: ListedOrder(folder / f"ids-{n}") for n, name in enumerate(names)}
        for order in self.orders.values():
            with map_disk_errors(order.path):
                order.path.touch()

    def add(self, name: str, ids: Int64) -> None:
        """Append samples to a file."""
        path = self.orders[name].path
        with map_disk_errors(path), path.open("ab") as file:
            file.write(np.ascontiguousarray(ids, _ID).data)
