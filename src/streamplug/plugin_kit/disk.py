"""Errors of full disks."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

DISK_FULL_ERRNOS = frozenset(
    getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)
)
"""Error numbers that mean a full disk or an exhausted quota."""


def describe_full_disk(path: Path, number: int, needed: int | None = None) -> str:
    """Return what is known of the disk that a file found no room on.

    Args:
        path: The file, which need not exist.
        number: What the system said: one of `DISK_FULL_ERRNOS`.
        needed: Bytes that were to be written; None if that is not known.
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
