"""Temporary directories that are removed even if the process that made them is killed.

They are in ``streamplug-USER`` of the system's temporary directory, which stays, each beside a lock file that
its owner holds. A process that can take the lock knows that the owner is dead; the next `TemporaryDirectory`
removes it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex

from streamplug.errors import AccessDenied, StorageError
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.locks import file_lock, try_file_lock

_LOCK = ".lock"
_NAME_BYTES = 8


class TemporaryDirectory:
    """A directory at `path` that is removed on close, or by another process after its owner died."""

    def __init__(self) -> None:
        """Create the directory and remove stale ones; AccessDenied if the parent is not private."""
        home = make_temp_root()
        with map_disk_errors(home):
            remove_stale_directories(home)
            self._held, self._process = ExitStack(), os.getpid()
            self.path = self._make_directory(home)

    def _make_directory(self, home: Path) -> Path:
        while True:
            path = home / token_hex(_NAME_BYTES)
            lock = path.with_suffix(_LOCK)
            self._held.enter_context(file_lock(lock, "for temporary files"))
            if lock.exists():  # else another process removed it as stale before we held it
                check_private(home)  # again: with the lock in it, it cannot be replaced any more
                path.mkdir(mode=0o700)
                return path
            self._held.close()

    def close(self) -> None:
        """Remove the directory and its content, unless a parent process has made it. May be called twice."""
        if self._process != os.getpid():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.with_suffix(_LOCK).unlink(missing_ok=True)
        self._held.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def make_temp_root() -> Path:
    """Create the private parent of temporary directories; AccessDenied if it belongs to others."""
    home = temp_root()
    with map_disk_errors(home):
        with suppress(FileExistsError):  # checked below
            home.mkdir(mode=0o700, parents=True)
        check_private(home)
    return home


def check_private(home: Path) -> None:
    """Make a directory private; AccessDenied if it belongs to others, as pickles in it are loaded."""
    status = home.lstat()
    own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if own and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        home.chmod(stat.S_IRWXU)
        own = not home.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not own:
        raise AccessDenied(
            f"{home} must be a directory that nobody else can write to, but is not: temporary files in it "
            "would not be safe; remove it, or set TMPDIR to a directory of your own"
        )


def remove_stale_directories(home: Path) -> None:
    """Remove the temporary directories of dead owners."""
    for lock in home.glob(f"*{_LOCK}"):
        # A lock file that was made here could belong to a directory whose owner is about to make it.
        with suppress(OSError), try_file_lock(lock, create=False) as free:
            if free:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
    for path in home.glob("[0-9a-f]" * 2 * _NAME_BYTES):
        # Written anew by a worker that outlived the owner: owners make the lock file first.
        if not path.with_suffix(_LOCK).exists():
            shutil.rmtree(path, ignore_errors=True)


def temp_root() -> Path:
    """Return the parent of temporary directories, which may not exist; StorageError if there is no place."""
    try:
        return Path(tempfile.gettempdir()) / f"streamplug-{os.getuid()}"
    except FileNotFoundError as error:
        raise StorageError(
            f"{error.strerror}; set TMPDIR to a directory that can be written to"
        ) from error
