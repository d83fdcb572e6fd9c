"""Storage of local files, memory, and other protocols of fsspec."""

from __future__ import annotations

from pathlib import Path

from streamplug.plugin_kit.fsspec_storage import FsspecStorage


class AnyFsspec(FsspecStorage):
    """Any URL or path that fsspec can open, such as ``/data``, ``memory://set``, ``sftp://…``.

    Options are passed to the fsspec file system.
    """

    def put(self, path: Path, target: str) -> None:
        if self.filesystem().protocol == "memory":
            # fsspec's own upload to memory is not atomic.
            self.filesystem().pipe_file(target, path.read_bytes())
        else:
            super().put(path, target)
