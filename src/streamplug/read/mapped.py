"""Maps the files of a shard into memory."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamplug.types import Bytes1D

_POPULATE_READ = 22
"""Of madvise(2), from Linux 5.14 on."""


class MappedFiles:
    """Some files, mapped.

    Attributes:
        data: The bytes of each, by role.
        inodes: Which file each path was.
        inode_of: The same by role.
    """

    def __init__(self, paths: Mapping[str, Path], opened: Mapping[str, BinaryIO]) -> None:
        """Map files.

        Args:
            paths: Where they are, by role.
            opened: Those of them that are open already.

        Raises:
            OSError: `FileNotFoundError` if one is gone.
        """
        self.data: dict[str, Bytes1D] = {}
        self.inodes: dict[Path, int] = {}
        self.inode_of: dict[str, int] = {}
        for role, path in paths.items():
            with opened[role] if role in opened else path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                self.inodes[path] = self.inode_of[role] = status.st_ino
                if status.st_size == 0:  # nothing to map
                    self.data[role] = np.empty(0, np.uint8)
                    continue
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            self.data[role] = np.frombuffer(mapped, np.uint8)

    def populate(self) -> None:
        """Map all pages at once, where the system can: cheaper than a page fault at each sample."""
        for data in self.data.values():
            _madvise()(data.ctypes.data, len(data), _POPULATE_READ)


@cache
def _madvise() -> Callable[[int, int, int], object]:
    """Return madvise(2) as a function during which other threads run, however slow the disk is.

    Those of `mmap.mmap` do not let them. An older kernel refuses the advice; pages then come one by one.
    """
    import ctypes

    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            found = ctypes.CDLL(None).madvise
            found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            return found
    return lambda *_: None
