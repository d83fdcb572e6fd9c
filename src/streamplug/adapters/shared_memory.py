"""Shared memory in which a worker process passes arrays to the process that started it.

Both processes map an anonymous file, so that nothing is left behind however they end. The file is divided
into slots, each for the arrays of one batch. The worker fills a free slot, which is free again when the
other process has dropped the last array in it.

In ``tests/benchmarks/bench_read.py`` the loader of tokens with two workers reads a third as many samples per
second of processor time if torch shares a new file for each tensor instead. Lists of bytes or strings are
packed into one array: without that, the loader of JPEGs reads 37 % fewer samples per second of it.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from multiprocessing import active_children, reduction
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

_MIN_MEAN_LENGTH = 512  # bytes or characters per value; pickling a list of shorter ones is faster
_STRING_ERRORS = "surrogatepass"  # strings that a transform returns may contain lone surrogates
_PAGE_BYTES = mmap.ALLOCATIONGRANULARITY
_ALIGNMENT_BYTES = 64
_GROWTH_FACTOR = 1.25
MIN_SHARED_BYTES = 1 << 14
"""Size in bytes from which on shared memory is faster than a pipe."""


class StringLayout(NamedTuple):
    """Division of an array into the values of a list."""

    lengths: list[int]  # bytes or characters of each value
    texts: bool  # whether the values are strings

    def values(self, data: NDArray[np.uint8]) -> list[bytes] | list[str]:
        """Return copies of the values in `data`."""
        view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        ends = pairwise(accumulate(self.lengths, initial=0))
        if self.texts:
            whole = str(view, "utf-8", _STRING_ERRORS)
            return [whole[start:stop] for start, stop in ends]
        return [view[start:stop].tobytes() for start, stop in ends]


class PackedStrings(NamedTuple):
    """Concatenated values of a list, and their division."""

    data: NDArray[np.uint8]
    cuts: StringLayout


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
    data = "".join(values).encode("utf-8", _STRING_ERRORS) if texts else b"".join(values)
    return PackedStrings(np.frombuffer(data, np.uint8), StringLayout(lengths, texts))


def message_bytes(values: Any) -> int:
    """Return the approximate bytes of an array or list in a message; `sys.maxsize` for other types."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    if type(values) not in (list, StringList):
        return sys.maxsize
    return len(values) * sys.getsizeof(values[0]) if values else 0


_numbers = itertools.count()
_by_key: WeakValueDictionary[tuple[int, int], SharedArrays] = WeakValueDictionary()
_of_workers: WeakKeyDictionary[BaseProcess, SharedArrays] = WeakKeyDictionary()


class PackedArrays(NamedTuple):
    """Message about the arrays of a batch in shared memory."""

    key: tuple[int, int]  # key of the `SharedArrays`
    slot: int  # number of the slot
    start: int  # offset of the slot in the file
    size: int  # bytes used of the slot
    # Name, dtype, shape, and offset in the slot of each array.
    fields: Sequence[tuple[Any, str, tuple[int, ...], int]]


class SharedArrays:
    """Memory shared with one worker; it is pickled to the worker when that is started."""

    def __init__(
        self, slots: int, *, descriptor: int | None = None, key: tuple[int, int] | None = None
    ) -> None:
        """Allocate memory with `slots` slots, or map what `descriptor` refers to, under its `key`.

        Raises:
            OSError: If the system does not support it.
        """
        self.key = key or (os.getpid(), next(_numbers))
        is_new = descriptor is None
        self._descriptor = (
            os.memfd_create("streamplug", os.MFD_CLOEXEC) if descriptor is None else descriptor
        )
        if is_new:
            os.ftruncate(self._descriptor, _PAGE_BYTES)
        self._slots = slots = min(slots, _PAGE_BYTES)  # further batches are copied
        self._starts, self._size, self._end = [0] * slots, 0, _PAGE_BYTES
        self._map: mmap.mmap | None = None
        # A byte per slot marks it as taken; it has one writer at a time.
        self._first = mmap.mmap(self._descriptor, _PAGE_BYTES)
        self._taken = np.frombuffer(self._first, np.uint8, slots)
        if is_new:
            _by_key[self.key] = self

    @staticmethod
    def possible() -> bool:
        """Return whether the system supports anonymous files."""
        return hasattr(os, "memfd_create")

    @property
    def path(self) -> str:
        """Path by which other processes of the user can open the file while this process runs."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_descriptor, (reduction.DupFd(self._descriptor), self._slots, self.key)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)  # None if it could not be created
        if descriptor is not None:
            os.close(descriptor)

    def pack(self, arrays: Mapping[Any, NDArray[Any]]) -> PackedArrays | None:
        """Copy arrays without Python objects into a free slot, in the worker; None if there is none."""
        fields, size = [], 0
        for name, array in arrays.items():
            fields.append((name, array.dtype.str, array.shape, size))
            size += -(-array.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        free = np.flatnonzero(self._taken == 0)
        if not len(free):
            return None
        slot = int(free[0])
        start = self._place(slot, size)
        whole = np.frombuffer(self._mapped(start + size), np.uint8)
        for (_, dtype, shape, offset), array in zip(fields, arrays.values()):
            first = start + offset
            target = whole[first : first + array.nbytes].view(dtype).reshape(shape)
            target[...] = array
        self._taken[slot] = 1
        return PackedArrays(self.key, slot, start, size, fields)

    def _place(self, slot: int, size: int) -> int:
        """Return the offset of a slot of at least `size` bytes; a larger one is allocated at the end."""
        slot_size, starts = self._size, self._starts
        if size > slot_size:
            slot_size = -(-int(size * _GROWTH_FACTOR) // _PAGE_BYTES) * _PAGE_BYTES
            # Slots in use stay where they are until they are dropped.
            starts = [0] * self._slots
        if not starts[slot]:
            # Before anything is recorded, as it may fail, such as with `ulimit -f`.
            os.ftruncate(self._descriptor, self._end + slot_size)
            starts[slot] = self._end
            self._size, self._starts, self._end = slot_size, starts, self._end + slot_size
        return starts[slot]

    def _mapped(self, size: int) -> mmap.mmap:
        """Return a mapping of at least the first `size` bytes; arrays keep older ones alive."""
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._descriptor, os.fstat(self._descriptor).st_size)
        return self._map

    def arrays(self, packed: PackedArrays) -> dict[Any, NDArray[Any]]:
        """Return the arrays of a batch as views of its slot; the slot is freed with the last one."""
        mapped = self._mapped(packed.start + packed.size)
        # NumPy's views of `whole` refer to it, not to each other.
        whole = np.frombuffer(mapped, np.uint8, packed.size, packed.start)
        finalize(whole, self._free, packed.slot, os.getpid()).atexit = False
        arrays = {}
        for name, dtype, shape, offset in packed.fields:
            size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            arrays[name] = whole[offset : offset + size].view(dtype).reshape(shape)
        return arrays

    def _free(self, slot: int, pid: int) -> None:
        if os.getpid() == pid:  # not in a forked copy
            self._taken[slot] = 0


def unpack_arrays(packed: PackedArrays) -> dict[Any, NDArray[Any]]:
    """Return the arrays that a worker packed into memory of this process.

    Raises:
        KeyError: If the memory was freed because its loader is gone.
    """
    return _by_key[packed.key].arrays(packed)


def map_arrays(packed: PackedArrays, path: str, slots: int) -> dict[Any, NDArray[Any]]:
    """Return the arrays that a worker of this process packed into memory of its own, see `SharedArrays.path`.

    Raises:
        OSError: If the memory is not mapped here yet, and the worker has ended.
    """
    memory = _by_key.get(packed.key)
    if memory is None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        memory = _by_key[packed.key] = SharedArrays(slots, descriptor=descriptor, key=packed.key)
        for worker in active_children():
            if worker.pid == packed.key[0]:  # it stays mapped as long as torch knows the worker
                _of_workers[worker] = memory
    return memory.arrays(packed)


def _from_descriptor(descriptor: Any, slots: int, key: tuple[int, int]) -> SharedArrays:
    return SharedArrays(slots, descriptor=descriptor.detach(), key=key)
