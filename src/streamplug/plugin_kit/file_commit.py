"""Staging files, which are renamed to their target when complete, and synced if they must last."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path

from streamplug.plugin_kit.system_calls import system_call

STAGING_PREFIX = ".streamplug-"
"""Prefix of the names of staging files in storages, which are not listed as objects."""

SYNC_GROUP_FILES = 32
"""Maximum number of files that are synced together."""

_SYNC_GROUP_BYTES = 64 << 20
"""Size of the files that are synced together, which the last of them may exceed."""

_SYNC_FILE_RANGE_WRITE = 2
"""Flag of sync_file_range(2): start to write, and do not wait."""

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


@contextmanager
def _open_to_sync(path: Path) -> Iterator[int]:
    """Yield a descriptor of a file; errors name the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        error.filename = str(path)
        raise


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk, so that it survives a loss of power.

    Raises:
        OSError: With the path as its `filename`.
    """
    with _open_to_sync(path) as descriptor:
        os.fsync(descriptor)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until the contents of files are on the disk.

    On Linux, the disk writes groups of files at once and the file system commits them together, so that many
    small files take less time than one after the other.

    Raises:
        OSError: With the path as its `filename`.
    """
    remaining = iter(paths)
    while group := list(_next_group(remaining)):
        if len(group) > 1:
            for path in group:
                with _open_to_sync(path) as descriptor:
                    _start_writing(descriptor)
        for path in group:
            sync_file(path)


def _next_group(paths: Iterator[Path]) -> Iterator[Path]:
    """Take the next files to sync together: few bytes, because a writer that is given up waits for them."""
    size = 0
    for path in islice(paths, SYNC_GROUP_FILES):
        yield path
        size += path.stat().st_size
        if size >= _SYNC_GROUP_BYTES:
            return


def _start_writing(descriptor: int) -> None:
    """Let the disk begin to write a file, where the system supports it; errors are left to the sync."""
    sync_file_range = system_call("sync_file_range", "c_int", "c_int64", "c_int64", "c_uint")
    if sync_file_range is not None:
        sync_file_range(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)


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


def staging_path(path: str) -> str:
    """Return a new path of a staging file beside a file of a storage."""
    return f"{path.rpartition('/')[0]}/{STAGING_PREFIX}{uuid.uuid4().hex}"


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
