"""Shuffle of the whole data set by a keyed bijection of its positions, computed per element.

A Feistel network permutes the smallest even-width binary range that holds all positions, with cycle
walking (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). Consecutive samples come from
arbitrary shards, so this is for local disks and range reads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamplug.interfaces import (
    Permutation,
    ShuffleAlgorithm,
    canonical_node_bounds,
    locate_entry,
    mix_bits,
)
from streamplug.types import Int64

_ROUNDS = 8
_TABLE_BITS = 17
"""Largest half, in bits, that uses lookup tables: at most 8 MiB, for up to 2**34 samples."""


class Bijection:
    """A permutation of ``[0, size)`` chosen by a key.

    The round function is looked up in tables for small halves, which is two to four times as fast.
    """

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        self._size = np.uint64(size)
        self._half = np.uint64(max((size - 1).bit_length() + 1, 2) // 2)
        self._mask = np.uint64((1 << int(self._half)) - 1)
        key = np.array([seed % (1 << 64), epoch], np.uint64)  # a list would pass through float64
        draw = np.random.Philox(counter=[0, 0, 0, 4], key=key)
        self._keys = draw.random_raw(_ROUNDS).astype(np.uint64)
        self._tables: NDArray[np.uint64] | None = None
        if self._half <= _TABLE_BITS:
            halves = np.arange(1 << int(self._half), dtype=np.uint64)
            self._tables = mix_bits(halves + self._keys[:, None]) & self._mask

    def __call__(self, positions: Int64) -> Int64:
        """Return the images of positions."""
        values = self._round_trip(positions.astype(np.uint64))
        outside = np.flatnonzero(values >= self._size)
        while len(outside):
            values[outside] = self._round_trip(values[outside])
            outside = outside[values[outside] >= self._size]
        return values.astype(np.int64)

    def inverse(self, position: int) -> int:
        """Return the preimage of a position."""
        value = np.array([position], np.uint64)
        while True:
            left, right = value >> self._half, value & self._mask
            for number in reversed(range(_ROUNDS)):
                left, right = right ^ self._mixed(number, left), left
            value = (left << self._half) | right
            if value[0] < self._size:
                return int(value[0])

    def _round_trip(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._half, values & self._mask
        for number in range(_ROUNDS):
            left, right = right, left ^ self._mixed(number, right)
        joined: NDArray[np.uint64] = (left << self._half) | right
        return joined

    def _mixed(self, number: int, half: NDArray[np.uint64]) -> NDArray[np.uint64]:
        mixed: NDArray[np.uint64]
        if self._tables is None:
            mixed = mix_bits(half + self._keys[number]) & self._mask
        else:
            mixed = self._tables[number][half.view(np.int64)]
        return mixed


class GlobalOrder(Permutation):
    """The order of one epoch; see the module."""

    def __init__(self, total: int, canonical_nodes: int, seed: int, epoch: int) -> None:
        self._bounds = canonical_node_bounds(total, canonical_nodes)
        self._bijection = Bijection(total, seed, epoch)

    def at(self, canonical_node: int, positions: Int64) -> Int64:
        return self._bijection(positions + int(self._bounds[canonical_node]))

    def find(self, sample: int) -> tuple[int, int]:
        return locate_entry(self._bounds, self._bijection.inverse(sample))


class GlobalShuffle(ShuffleAlgorithm):
    """A shuffle of the whole data set, independent of the block size; see the module."""

    uses_block_size = False

    def order(
        self, starts: Int64, *, canonical_nodes: int, seed: int, epoch: int, block_size: int
    ) -> Permutation:
        return GlobalOrder(int(starts[-1]), canonical_nodes, seed, epoch)
