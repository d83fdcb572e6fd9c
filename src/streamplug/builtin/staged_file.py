"""File that is written beside its target, and has a name only once it is complete, where the system can."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2s
from pathlib import Path
from typing import BinaryIO

from streamplug.plugin_kit import STAGING_PREFIX, staging_path, sync_directory, sync_file

_DESCRIPTORS = "/proc/self/fd"
"""Directory of the links to open files, by which one without a name gets a name."""


class StagedFile:
    """A file that replaces another one, or creates one, when it is complete.

    On Linux it is an unnamed file, of which the system leaves nothing behind if the process is killed, except
    at the moment between the two steps of a replacement: the next one of the same target removes that. Where
    the file system has no unnamed files, it has the name of a staging file from the start.

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
        if self._is_named:
            self._staging.replace(target)
        else:
            self._replace_by_link(target)
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

    def _replace_by_link(self, target: Path) -> None:
        link = self._link_beside(target)
        try:
            link.replace(target)
        except BaseException:
            link.unlink(missing_ok=True)
            raise

    def _link_beside(self, target: Path) -> Path:
        """Link the unnamed file to a name that depends on the target, or to another one if that is in use."""
        name = blake2s(os.fsencode(target.name), digest_size=16).hexdigest()
        link = target.with_name(f"{STAGING_PREFIX}{name}")
        with suppress(OSError):  # it is locked, or the file system has no locks
            fcntl.flock(self.file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            if link.exists():
                _remove_unlocked(link)
            self._link(link)  # a link, unlike a rename, never replaces a file
            return link
        self._link(self._staging)
        return self._staging

    def _link(self, path: Path) -> None:
        if self._is_named:
            os.link(self._staging, path)
        else:
            descriptor = self.file.fileno()
            # Without a directory, `os.link` would not follow the link to the file.
            os.link(f"{_DESCRIPTORS}/{descriptor}", path, src_dir_fd=descriptor)


def _remove_unlocked(link: Path) -> None:
    """Remove the link of a writer that was killed: one that is alive has its file locked.

    Raises:
        OSError: If it is locked, or cannot be removed.
    """
    with link.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who holds the lock of a file alone changes its link; by now, the link may be that of another file.
        if os.path.samestat(os.fstat(file.fileno()), link.stat()):
            link.unlink()


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
        if is_named:
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
