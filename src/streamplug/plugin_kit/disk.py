"""Errors of full disks."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

DISK_FULL_ERRNOS = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)
)
"""Error numbers of a full disk or an exceeded quota."""


def describe_full_disk(path: Path, number: int, needed: int | None = None) -> str:
    """Return an error message with the free space of the disk of a file that could not be written.

    Args:
        path: The file, which need not exist.
        number: Error number in `DISK_FULL_ERRNOS`.
        needed: Bytes to be written, if known.
    """
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        disk = shutil.disk_usage(place)
    except OSError:
        return f"{path}: {os.strerror(number)}"
    wanted = "" if needed is None else f", {needed} bytes were needed"
    return (
        f"{path}: {os.strerror(number)}: the disk mounted at {_mount_of(place)} has {disk.free} of "
        f"{disk.total} bytes free{wanted}"
    )


def _mount_of(place: Path) -> Path:
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place
