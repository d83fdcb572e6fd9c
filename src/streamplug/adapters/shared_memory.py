"""Arena: memory in which a worker process leaves arrays for the process that started it.

It is a file without a name that both have mapped, so that nothing is left behind however they end. It has
slots, each for the arrays of one batch. The worker takes a free one; it is free again when the other process
has dropped the last array in it.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

_PAGE = mmap.ALLOCATIONGRANULARITY
_ALIGN = 64
_GROWTH = 1.25

_numbers = itertools.count()
_arenas: WeakValueDictionary[tuple[int, int], SharedArrays] = WeakValueDictionary()


class PackedArrays(NamedTuple):
    """Where the arrays of a batch lie, to be sent.

    Attributes:
        arena: Which arena.
        slot: Which of its slots.
        start: Where in the file the slot begins.
        size: How many bytes of it are used.
        fields: Name, dtype, shape of each array, and where it begins in the slot.
    """

    arena: tuple[int, int]
    slot: int
    start: int
    size: int
    fields: Sequence[tuple[Any, str, tuple[int, ...], int]]


class SharedArrays:
    """Memory that a process shares with one worker; it travels to it as the worker is started."""

    def __init__(self, slots: int) -> None:
        """Make an arena of so many slots.

        Raises:
            OSError: If the system has no such files, or no more of them.
        """
        self.key = os.getpid(), next(_numbers)
        self._open(os.memfd_create("streamplug", os.MFD_CLOEXEC), slots)
        os.ftruncate(self._descriptor, _PAGE)
        self._map_first()
        _arenas[self.key] = self

    @staticmethod
    def possible() -> bool:
        """Say whether this system has what it takes."""
        return hasattr(os, "memfd_create")

    def _open(self, descriptor: int, slots: int) -> None:
        self._descriptor, self._slots = descriptor, slots
        self._starts, self._size, self._end = [0] * slots, 0, _PAGE
        self._map: mmap.mmap | None = None

    def _map_first(self) -> None:
        # Each slot has a byte that says whether it is taken, with one writer at a time.
        self._first = mmap.mmap(self._descriptor, _PAGE)
        self._taken = np.frombuffer(self._first, np.uint8, self._slots)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (reduction.DupFd(self._descriptor), self._slots, self.key)

    def __del__(self) -> None:
        os.close(self._descriptor)

    # -- the worker's end -------------------------------------------------------------

    def pack(self, arrays: Mapping[Any, NDArray[Any]]) -> PackedArrays | None:
        """Copy arrays into a free slot; returns None if there is none.

        Args:
            arrays: Of dtypes without Python objects, by anything that pickles.
        """
        fields, size = [], 0
        for name, array in arrays.items():
            fields.append((name, array.dtype.str, array.shape, size))
            size += -(-array.nbytes // _ALIGN) * _ALIGN
        free = np.flatnonzero(self._taken == 0)
        if not len(free):
            return None
        slot = int(free[0])
        start = self._place(slot, size)
        whole = np.frombuffer(self._mapped(start + size), np.uint8)
        for (_, dtype, shape, at), array in zip(fields, arrays.values()):
            target = whole[start + at : start + at + array.nbytes].view(dtype).reshape(shape)
            target[...] = array
        self._taken[slot] = 1
        return PackedArrays(self.key, slot, start, size, fields)

    def _place(self, slot: int, size: int) -> int:
        """Return where a slot of at least `size` bytes begins; a larger one is made at the end."""
        if size > self._size:
            self._size = -(-int(size * _GROWTH) // _PAGE) * _PAGE
            self._starts = [
                0
            ] * self._slots  # those in use stay where they are until they are dropped
        if not self._starts[slot]:
            self._starts[slot] = self._end
            self._end += self._size
            os.ftruncate(self._descriptor, self._end)
        return self._starts[slot]

    # -- both ends --------------------------------------------------------------------

    def _mapped(self, size: int) -> mmap.mmap:
        """Return a mapping of at least the first `size` bytes; arrays keep an older one alive."""
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        return self._map

    # -- the other end ----------------------------------------------------------------

    def arrays(self, packed: PackedArrays) -> dict[Any, NDArray[Any]]:
        """Return the arrays of a batch, which lie in the slot; the last one dropped frees it."""
        slot = _Slot(self, packed.slot, self._mapped(packed.start + packed.size), packed)
        whole = np.asarray(slot)
        found = {}
        for name, dtype, shape, at in packed.fields:
            size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            found[name] = whole[at : at + size].view(dtype).reshape(shape)
        return found

    def free(self, slot: int) -> None:
        """Let the worker use a slot again."""
        self._taken[slot] = 0


class _Slot:
    """What the arrays of a batch are views of, for numpy; frees the slot when they are gone."""

    def __init__(
        self, arena: SharedArrays, slot: int, mapped: mmap.mmap, packed: PackedArrays
    ) -> None:
        self._arena, self._slot, self._mapped, self._pid = arena, slot, mapped, os.getpid()
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (np.frombuffer(mapped, np.uint8).ctypes.data + packed.start, False),
            "shape": (packed.size,),
            "typestr": "|u1",
        }

    def __del__(self) -> None:
        if os.getpid() == self._pid:  # not in a fork's copy
            self._arena.free(self._slot)


def received(packed: PackedArrays) -> dict[Any, NDArray[Any]]:
    """Return the arrays that a worker has packed into an arena of this process.

    Raises:
        KeyError: If the arena is gone: nobody waits for its batches.
    """
    return _arenas[packed.arena].arrays(packed)


def _arrived(descriptor: Any, slots: int, key: tuple[int, int]) -> SharedArrays:
    arena = SharedArrays.__new__(SharedArrays)
    arena.key = key
    arena._open(descriptor.detach(), slots)  # noqa: SLF001 - its own class
    arena._map_first()  # noqa: SLF001
    return arena
