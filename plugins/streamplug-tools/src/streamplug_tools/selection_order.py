"""Orders: which samples of a data set are wanted, one after the other, for sets of any size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from streamplug.interfaces import Order as Shuffle
from streamplug.plugin.registry import make
from streamplug.types import Int64

_ID = np.dtype("<i8")


class Order(Protocol):
    """Some samples, in some order. Pickles.

    Attributes:
        size: How many they are.
    """

    @property
    def size(self) -> int:
        """How many samples there are in it."""

    def ids(self, begin: int, end: int) -> Int64:
        """Return the samples at the places ``[begin, end)``."""


@dataclass(frozen=True)
class SequentialOrder:
    """Samples in a row.

    Attributes:
        size: How many.
        first: The first of them.
    """

    size: int
    first: int = 0

    def ids(self, begin: int, end: int) -> Int64:
        return np.arange(self.first + begin, self.first + end, dtype=np.int64)


@dataclass(frozen=True)
class ShuffledOrder:
    """All samples of a set, each once, in an order that a seed tells; none of it is held in memory.

    Attributes:
        size: How many.
        seed: The seed.
    """

    size: int
    seed: int

    def ids(self, begin: int, end: int) -> Int64:
        return _shuffle(self.size, self.seed).at(0, np.arange(begin, end, dtype=np.int64))


@lru_cache(8)
def _shuffle(size: int, seed: int) -> Shuffle:
    order: Shuffle = make("shuffle", "global").order(
        np.array([0, size]), canonical_nodes=1, seed=seed, epoch=0, block_size=1
    )
    return order


@dataclass(frozen=True)
class ListedOrder:
    """Samples that a file names, which may be larger than memory.

    Attributes:
        path: The file: their ids as little-endian int64.
    """

    path: Path

    @property
    def size(self) -> int:
        """How many."""
        return self.path.stat().st_size // _ID.itemsize

    def ids(self, begin: int, end: int) -> Int64:
        with self.path.open("rb") as file:
            return np.fromfile(file, _ID, max(end - begin, 0), offset=begin * _ID.itemsize).astype(
                np.int64
            )


class OrderFiles:
    """Writes the files of several `ListedOrder`."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        """Begin files in a folder, one for each name."""
        self.orders = {name: ListedOrder(folder / f"ids-{n}") for n, name in enumerate(names)}
        for order in self.orders.values():
            order.path.touch()

    def add(self, name: str, ids: Int64) -> None:
        """Append samples to one of them."""
        with self.orders[name].path.open("ab") as file:
            file.write(np.ascontiguousarray(ids, _ID).data)
