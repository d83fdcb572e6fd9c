"""Opening of downloaded files before they are committed to the cache."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from streamplug.cache.quota import CommitFile


class FileOpener:
    """Opens a file before its commit, since another process may evict it right afterwards."""

    def __init__(self, role: str, opened: dict[str, BinaryIO] | None) -> None:
        """Store the open file in `opened` under its role; with None, open nothing."""
        self._role, self._opened = role, opened

    def wrap(self, commit: CommitFile, target: Path) -> CommitFile:
        """Return a commit function that opens the file at `target` first."""
        opened, role = self._opened, self._role
        if opened is None:
            return commit

        def open_and_commit(part: Path, path: Path) -> None:
            if path == target:
                if role in opened:  # left by a failed attempt
                    opened.pop(role).close()
                opened[role] = part.open("rb")
            commit(part, path)

        return open_and_commit
