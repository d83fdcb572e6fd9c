"""Staging files, which are renamed to their target when complete, and synced if they must last."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

# Directories that cannot be opened for reading, and file systems that sync names by themselves.
_NO_DIRECTORY_SYNC_ERRNOS = frozenset(
    (
        errno.EACCES,
        errno.EBADF,
        errno.EINVAL,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EPERM,
    )
)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk, so that it survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk, where its file system can do that."""
    try:
        sync_file(path)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC_ERRNOS:
            raise


def make_directory(path: Path, *, durable: bool = False) -> None:
    """Create a directory and its parents, unless they exist; sync the names of new ones if `durable`."""
    missing = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    path.mkdir(parents=True, exist_ok=True)
    if durable:
        for folder in missing:
            sync_directory(folder.parent)


def commit_file(staging: Path, target: Path, *, durable: bool = False) -> None:
    """Rename a complete staging file to its target, creating the target's directory.

    If `durable`, its content is on the disk before it has its name, and the name when this returns: after a
    loss of power, the target is the earlier file or all of this one.
    """
    if durable:
        sync_file(staging)
    make_directory(target.parent, durable=durable)
    staging.replace(target)
    if durable:
        sync_directory(target.parent)


@contextmanager
def stage_file(
    target: Path, staging: Path | None = None, *, durable: bool = False
) -> Iterator[Path]:
    """Yield a staging path; rename it to `target` on success, remove it on failure.

    Args:
        target: The file to write.
        staging: Path on the same file system, in a directory that exists. The default depends on `target`
            alone, so that the leftover of a killed process is overwritten; concurrent writers of one target
            must hold a lock.
        durable: As for `commit_file`.
    """
    path = target.with_name(f".{target.name}.tmp") if staging is None else staging
    try:
        yield path
        commit_file(path, target, durable=durable)
    finally:
        path.unlink(missing_ok=True)
