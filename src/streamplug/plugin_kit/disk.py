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
    absolute = path.absolute()
    existing = next(place for place in (absolute, *absolute.parents) if place.exists())
    try:
        disk = shutil.disk_usage(existing)
    except OSError:
        return f"{path}: {os.strerror(number)}"
    mount = next(place for place in (existing, *existing.parents) if place.is_mount())
    shortage = "" if needed is None else f", {needed} bytes were needed"
    return (
        f"{path}: {os.strerror(number)}: the disk mounted at {mount} has {disk.free} of "
        f"{disk.total} bytes free{shortage}"
    )
