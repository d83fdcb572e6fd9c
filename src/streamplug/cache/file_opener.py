"""Opening cache files before they are admitted."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from streamplug.cache.quota import CommitFile


class FileOpener:
    """Opens a file before it is admitted, as another process may evict it right afterwards."""

    def __init__(self, role: str, opened: dict[str, BinaryIO] | None) -> None:
        """Put the open file into `opened` by its role; None opens nothing."""
        self._role, self._opened = role, opened

    def wrap(self, commit: CommitFile, target: Path) -> CommitFile:
        """Return `commit`, which opens the file whose target is `target` first."""
        opened, role = self._opened, self._role
        if opened is None:
            return commit

        def open_and_commit(part: Path, path: Path) -> None:
            if path == target:
                if role in opened:  # from an attempt that failed
                    opened.pop(role).close()
                opened[role] = part.open("rb")
            commit(part, path)

        return open_and_commit
