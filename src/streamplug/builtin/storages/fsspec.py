"""Storage of local files, memory, and other protocols of fsspec."""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path

from streamplug.errors import AlreadyExists
from streamplug.plugin_kit.client_storage import STAGING_PREFIX
from streamplug.plugin_kit.fsspec_storage import FsspecStorage, is_local
from streamplug.types import Buffer

_creating_in_memory = threading.Lock()


class AnyFsspec(FsspecStorage):
    """Any URL or path that fsspec can open, such as ``/data``, ``memory://set``, ``sftp://…``.

    Options are passed to the fsspec file system.
    """

    @property
    def can_create(self) -> bool:  # type: ignore[override]  # it depends on the location
        return self._in_memory or is_local(self.filesystem())

    @property
    def _in_memory(self) -> bool:
        return bool(self.filesystem().protocol == "memory")

    def create(self, key: str, data: Buffer) -> None:
        if not is_local(self.filesystem()):
            with _creating_in_memory:
                return super().create(key, data)
        with self.translated(key):
            target = Path(self.path(key))
            target.parent.mkdir(parents=True, exist_ok=True)
            staging = target.with_name(f"{STAGING_PREFIX}{uuid.uuid4().hex}")
            try:
                with staging.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(staging, target)  # unlike a rename, it never replaces a file
            except FileExistsError:
                raise AlreadyExists(f"{self.url_of(key)} exists") from None
            finally:
                staging.unlink(missing_ok=True)

    def put(self, path: Path, target: str) -> None:
        if self._in_memory:
            # fsspec's own upload to memory is not atomic.
            self.filesystem().pipe_file(target, path.read_bytes())
        else:
            super().put(path, target)
