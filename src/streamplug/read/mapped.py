"""Memory maps of the files of a shard."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from streamplug.read.memory import Span
from streamplug.types import Bytes1D

_PAGE, _AROUND = 1 << 12, 1 << 16
"""Page size, and size of the region that Linux maps around a page fault, in bytes."""

_TOUCHES = 512
"""Minimum number of bytes touched per file with as many pages: NumPy releases the GIL above 500."""


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
                self.data[role] = _mapped(stream.fileno(), status.st_size)

    def populate(self) -> None:
        """Map all pages at once, which is cheaper than a page fault at each sample.

        One byte of each region that the system maps together is read. Unless the file has few pages, this
        releases the GIL, so that other threads run even if the disk is slow.
        """
        for data in self.data.values():
            np.bitwise_or.reduce(data[:: min(_AROUND, max(len(data) // _TOUCHES, _PAGE))])


class _Region(Span):
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


def _mapped(descriptor: int, size: int) -> Bytes1D:
    if size == 0:
        return np.empty(0, np.uint8)
    if sys.platform == "win32":  # mmap.mmap holds no file descriptor there
        return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)
    return np.asarray(_Region(descriptor, size))
