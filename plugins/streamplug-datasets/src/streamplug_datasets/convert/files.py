"""Finds the files of an original, and says which is missing."""

from __future__ import annotations

from pathlib import Path

from streamplug.errors import DataError, NotFound


def folder(path: Path) -> Path:
    """Return a folder.

    Raises:
        NotFound: If there is none.
    """
    if not path.is_dir():
        raise NotFound(f"{path}: there is no such folder")
    return path


def file(path: Path) -> Path:
    """Return a file that is not empty.

    Raises:
        NotFound: If there is none.
        DataError: If it is empty.
    """
    if not path.is_file():
        raise NotFound(f"{path}: there is no such file")
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    return path


def expect(actual: int, expected: int, what: str, *, allow_partial: bool) -> None:
    """Check a number that the real data set has.

    Raises:
        DataError: If it is another, and a part of the data set will not do.
    """
    if actual != expected and not (allow_partial and actual > 0):
        raise DataError(
            f"{what}: found {actual:,}, expected {expected:,}; pass --allow-partial for a part of it"
        )
