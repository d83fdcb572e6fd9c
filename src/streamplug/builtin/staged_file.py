"""File that is written beside its target, and has a name only once it is complete, where the system can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from streamplug.plugin_kit import staging_path, sync_directory, sync_file

_DESCRIPTORS = "/proc/self/fd"
"""Directory of the links to open files, by which one without a name gets a name."""


class StagedFile:
    """A file that replaces another one, or creates one, when it is complete.

    On Linux it is an unnamed file, of which the system leaves nothing behind if the process is killed. Where
    the file system has none, it has the name of a staging file from the start.

    Attributes:
        file: The empty file, to be written.
    """

    def __init__(self, file: BinaryIO, staging: Path, *, is_named: bool) -> None:
        self.file, self._staging, self._is_named = file, staging, is_named

    def replace(self, target: Path) -> None:
        """Give the file, which is on the disk before that, the name of another one, atomically.

        Raises:
            OSError: If it cannot be synced or renamed.
        """
        self._complete()
        if not self._is_named:
            self._link(self._staging)  # a link, unlike a rename, never replaces a file
        self._staging.replace(target)
        sync_directory(target.parent)

    def create(self, target: Path) -> None:
        """Give the file, which is on the disk before that, a name that must be free.

        Raises:
            FileExistsError: If it is not.
            OSError: If the file cannot be synced, or its file system has no hard links.
        """
        self._complete()
        self._link(target)
        sync_directory(target.parent)

    def _complete(self) -> None:
        """Wait until the content is on the disk."""
        self.file.flush()
        if self._is_named:
            self.file.close()  # some network file systems do not rename open files
            sync_file(self._staging)
        else:
            os.fsync(self.file.fileno())

    def _link(self, path: Path) -> None:
        if self._is_named:
            os.link(self._staging, path)
        else:
            descriptor = self.file.fileno()
            # Without a directory, `os.link` would not follow the link to the file.
            os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor)


@contextmanager
def stage_beside(target: Path) -> Iterator[StagedFile]:
    """Yield a file of the directory of a target, and remove it afterwards unless it got the target's name.

    Raises:
        OSError: If it cannot be made.
    """
    staging = Path(staging_path(str(target)))
    descriptor = _open_unnamed(target.parent)
    is_named = descriptor is None
    try:
        with staging.open("xb") if descriptor is None else os.fdopen(descriptor, "wb") as file:
            yield StagedFile(file, staging, is_named=is_named)
    finally:
        staging.unlink(missing_ok=True)


def _open_unnamed(directory: Path) -> int | None:
    """Return the descriptor of a new unnamed file in a directory; None where there are no such files."""
    unnamed = getattr(os, "O_TMPFILE", None)  # of Linux alone
    if unnamed is None or not Path(_DESCRIPTORS).is_dir():
        return None
    try:
        return os.open(directory, unnamed | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError:  # the file system has none; or no file can be made, as making a named one tells
        return None
