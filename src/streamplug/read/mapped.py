"""Maps the files of a shard into memory."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamplug.types import Bytes1D


class MappedFiles:
    """Some files, mapped.

    Attributes:
        data: The bytes of each, by role.
        maps: The mappings; an empty file has none.
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
        self.maps: list[mmap.mmap] = []
        self.inodes: dict[Path, int] = {}
        self.inode_of: dict[str, int] = {}
        for role, path in paths.items():
            with opened[role] if role in opened else path.open("rb") as stream:
                status = os.fstat(stream.fileno())
                self.inodes[path] = self.inode_of[role] = status.st_ino
                if status.st_size == 0:  # nothing to map
                    self.data[role] = np.empty(0, np.uint8)
                    continue
                self.maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
            self.data[role] = np.frombuffer(self.maps[-1], np.uint8)
