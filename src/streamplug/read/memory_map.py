"""Memory maps of the files of shards, and one buffer over several of them."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from streamplug.interfaces import GatherBuffer
from streamplug.types import Bytes1D, Int64

_PAGE_BYTES = 1 << 12
_FAULT_AROUND_BYTES = 1 << 16
"""Size of the region that Linux maps around a page fault."""

_MIN_TOUCHED_PAGES = 512
"""Pages touched of a file that has as many: NumPy releases the GIL above 500."""


class MappedFiles:
    """Memory maps of some files."""

    def __init__(self, paths: Mapping[str, Path], opened: Mapping[str, BinaryIO]) -> None:
        """Map files by role; `opened` are those that are open already, and are closed here."""
        self.data: dict[str, Bytes1D] = {}  # bytes of each file, by role
        self.inodes: dict[Path, int] = {}
        self.inode_of: dict[str, int] = {}  # by role
        for role, path in paths.items():
            with opened[role] if role in opened else path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                self.inodes[path] = self.inode_of[role] = status.st_ino
                self.data[role] = _map_file(stream.fileno(), status.st_size)

    def populate(self) -> None:
        """Map all pages at once, which is cheaper than a page fault at each sample.

        One byte of each region that the system maps together is read. Unless the file has few pages, this
        releases the GIL, so that other threads run even if the disk is slow.
        """
        for data in self.data.values():
            step = min(_FAULT_AROUND_BYTES, max(len(data) // _MIN_TOUCHED_PAGES, _PAGE_BYTES))
            np.bitwise_or.reduce(data[::step])


class _Span:
    """Range of addresses of this process, which NumPy sees as a read-only array."""

    def __init__(self, start: int, stop: int) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (start, True),
            "shape": (stop - start,),
            "typestr": "|u1",
        }


class _Region(_Span):
    """Read-only memory map of a file, unmapped when it is collected.

    Unlike `mmap.mmap` it holds no file descriptor, of which a process with many open shards would run out.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        import ctypes

        map_, unmap = _functions()
        at = map_(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if at == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        super().__init__(at, at + size)
        weakref.finalize(self, unmap, at, size).atexit = False


@cache
def _functions() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return mmap(2) and munmap(2)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    map_, unmap = libc.mmap, libc.munmap
    map_.restype = address = ctypes.c_void_p
    number = ctypes.c_int
    map_.argtypes = (address, ctypes.c_size_t, number, number, number, ctypes.c_long)
    unmap.argtypes = (address, ctypes.c_size_t)
    return map_, unmap


def _map_file(descriptor: int, size: int) -> Bytes1D:
    if size == 0:
        return np.empty(0, np.uint8)
    return np.asarray(_Region(descriptor, size))


def spanned(buffers: Sequence[Bytes1D]) -> tuple[GatherBuffer, Int64]:
    """Return one buffer that spans several others without a copy, and the offset of each in it.

    It lets one call gather rows of all of them. The bytes between them must not be accessed: they may not be
    mapped. The caller keeps `buffers` alive, and checks that rows lie inside them. At least one buffer is
    needed; all are uint8, contiguous and not empty.
    """
    starts = [buffer.__array_interface__["data"][0] for buffer in buffers]
    first = min(starts)
    end = max(start + len(buffer) for start, buffer in zip(starts, buffers))
    return GatherBuffer(np.asarray(_Span(first, end))), np.array(starts, np.int64) - first
