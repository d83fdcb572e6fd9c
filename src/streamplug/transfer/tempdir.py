"""Directories for temporary files that go with whoever made them, also if that is killed.

They lie together in ``streamplug-USER`` of the directory for temporary files. Beside each is a lock that
its maker holds, so that whoever can take it knows that the maker is dead. The next one to be made removes it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType

from streamplug.errors import AccessDenied
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import file_lock, try_file_lock

_LOCK = ".lock"


class TemporaryDirectory:
    """A directory that is gone when it is closed, or some time after its maker has died.

    Attributes:
        path: It.
    """

    def __init__(self) -> None:
        """Make one, and remove those of dead makers.

        Raises:
            AccessDenied: If others could change what is put there.
            StorageError: If there is no room for it.
        """
        home = temp_root()
        with map_disk_errors(home):
            _make_own(home)
            remove_stale_directories(home)
            self._held = ExitStack()
            self.path = self._made(home)

    def _made(self, home: Path) -> Path:
        while True:
            path = home / token_hex(8)
            lock = path.with_suffix(_LOCK)
            self._held.enter_context(file_lock(lock, "for temporary files"))
            if lock.exists():  # else it was taken for that of a dead maker before it was held
                check_private(
                    home
                )  # with the lock in it, nobody can put another in its place any more
                path.mkdir(mode=0o700)
                return path
            self._held.close()

    def close(self) -> None:
        """Remove it and all that is in it. May be called twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.with_suffix(_LOCK).unlink(missing_ok=True)
        self._held.close()
        with suppress(OSError):  # others are there
            self.path.parent.rmdir()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def make_temp_root() -> Path:
    """Make the place of these directories, for this user alone, and return it.

    Raises:
        AccessDenied: If others could change what is put there.
        StorageError: If it cannot be made.
    """
    home = temp_root()
    with map_disk_errors(home):
        _make_own(home)
    return home


def _make_own(home: Path) -> None:
    """Make the place of these directories, unless it is there."""
    while True:
        with suppress(FileExistsError):  # whatever it is, it is looked at
            home.mkdir(mode=0o700, parents=True)
        with suppress(FileNotFoundError):  # whoever had the last directory there has removed it
            check_private(home)
            return


def check_private(home: Path) -> None:
    """Refuse a place that is another user's: its name is known, and pickles that lie there are read.

    Raises:
        AccessDenied: If it is.
    """
    found = home.lstat()
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if own and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        home.chmod(stat.S_IRWXU)
        own = not home.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not own:
        raise AccessDenied(
            f"{home} must be a directory that nobody else can write to, but is not: temporary files in it "
            "would not be safe; remove it, or set TMPDIR to a directory of your own"
        )


def remove_stale_directories(home: Path) -> None:
    """Remove the directories in a place whose makers are dead."""
    for lock in home.glob(f"*{_LOCK}"):
        with suppress(OSError), try_file_lock(lock) as free:
            if free:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)


def temp_root() -> Path:
    """Return the place of these directories, which may not exist."""
    return Path(tempfile.gettempdir()) / f"streamplug-{os.getuid()}"
