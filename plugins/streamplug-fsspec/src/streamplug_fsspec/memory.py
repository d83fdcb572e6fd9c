"""Storage in the memory of this process."""

from __future__ import annotations

import threading
from pathlib import Path

from streamplug.types import Buffer
from streamplug_fsspec.fsspec_storage import FsspecStorage

_creating = threading.Lock()


class MemoryStorage(FsspecStorage):
    """The objects below a ``memory://`` URL, which all threads of this process see."""

    can_create = True

    def create(self, key: str, data: Buffer) -> None:
        with _creating:
            super().create(key, data)

    def put(self, path: Path, target: str) -> None:
        # fsspec's own upload to memory is not atomic.
        self.filesystem().pipe_file(target, path.read_bytes())
