"""Record of the files admitted to a cache since the machine started.

Files are not synced to the disk when they are admitted. So after a loss of power, one may have its name and
size without its content. ``boot-ID`` in the state directory names those that were admitted or verified while
the machine had this boot ID; others are verified at their first use.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from streamplug.transfer import state_directory

_UNUSED_SECONDS = 7 * 24 * 3600  # records of other machines that share the directory are younger


@cache
def boot_id() -> str:
    """Return what identifies the current boot of the machine; empty if the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


class BootRecord:
    """The files of a cache at `root` that were admitted or verified under the current boot."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[str] = set()
        self._offset = 0  # of what other processes may have added

    def __contains__(self, name: str) -> bool:
        if name not in self._names and boot_id():
            self._read()
        return name in self._names or not boot_id()

    def add(self, name: str) -> None:
        """Record a file by its name below the root."""
        if name not in self:
            self._names.add(name)
            with suppress(OSError), self._path.open("ab") as stream:  # else verified once more
                # The line before may be torn, as the disk was full.
                stream.write(b"\n" + json.dumps(name).encode() + b"\n")

    def remove_old(self) -> None:
        """Remove the records of earlier boots."""
        for path in state_directory(self._root).glob("boot-*"):
            if path != self._path and time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
                path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return state_directory(self._root) / f"boot-{boot_id()}"

    def _read(self) -> None:
        with suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._offset)
            lines, newline, _ = stream.read().rpartition(b"\n")
            self._offset += len(lines + newline)
            for line in lines.splitlines():
                with suppress(ValueError, RecursionError):
                    self._names.add(str(json.loads(line)))
