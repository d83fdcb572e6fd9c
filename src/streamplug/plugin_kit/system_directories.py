"""Directories that are no part of a data set."""

from __future__ import annotations

SYSTEM_DIRECTORIES = frozenset(
    ("lost+found", "System Volume Information", "$RECYCLE.BIN", "__MACOSX")
)
"""Names of directories that file systems and archivers make."""
