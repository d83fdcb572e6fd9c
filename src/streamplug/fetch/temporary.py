"""Directories for temporary files that go with whoever made them, also if that is killed.

They lie together in ``streamplug-USER`` of the directory for temporary files. Beside each is a lock that
its maker holds, so that whoever can take it knows that the maker is dead. The next one to be made removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType

from streamplug.fetch.files import local_errors
from streamplug.fetch.locks import file_lock, lock_if_free

_LOCK = ".lock"


class TemporaryDirectory:
    """A directory that is gone when it is closed, or some time after its maker has died.

    Attributes:
        path: It.
    """

    def __init__(self) -> None:
        """Make one, and remove those of dead makers.

        Raises:
            StorageError: If there is no room for it.
        """
        home = _home()
        with local_errors(home):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            sweep(home)
            self._held = ExitStack()
            self.path = self._made(home)

    def _made(self, home: Path) -> Path:
        while True:
            path = home / token_hex(8)
            lock = path.with_suffix(_LOCK)
            self._held.enter_context(file_lock(lock, "for temporary files"))
            if lock.exists():  # else it was taken for that of a dead maker before it was held
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


def sweep(home: Path) -> None:
    """Remove the directories in a place whose makers are dead."""
    for lock in home.glob(f"*{_LOCK}"):
        with suppress(OSError), lock_if_free(lock) as free:
            if free:
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)


def _home() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    return Path(tempfile.gettempdir()) / f"streamplug-{user}"
