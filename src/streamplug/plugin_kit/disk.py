"""Texts about disks that are full, and what to do about the errors of the operating system."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

DISK_FULL_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Error numbers of a full disk or an exceeded quota, where removing files makes room."""

OUTPUT_REMEDIES = {
    errno.ENOSPC: "make room there, or write to another disk",
    errno.EDQUOT: "free some of your quota of that disk, or write to another one",
    errno.EFBIG: "raise the limit of the file size (ulimit -f), or write smaller shards",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many open files: end some processes",
    errno.EROFS: "write to a disk that can be written to; a disk with errors becomes read-only, too",
    errno.ENOENT: "the directory was removed while it was written to: keep it, and write again",
    errno.ENOTDIR: "a file has the name of a directory: write to another place",
    errno.EIO: "the disk is failing: check it, or use another one",
}
"""What to do about the error numbers of files that are written."""


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error is that of a full disk, whether mapped to one of streamplug or not."""
    return isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS


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
