"""File locks between processes; the operating system releases them when the holder dies."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from xxhash import xxh64

from streamplug.errors import StorageError
from streamplug.plugin_kit.cancellation import abandoned, check, idle, sleep

STATE_DIR = ".streamplug"

_NUM_LOCK_FILES = 251
_MAX_LOCK_SECONDS = 1800
LOCK_POLL_SECONDS = 0.05

_HELD_ERRNOS = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_NO_LOCKS_ERRNOS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LOG = logging.getLogger("streamplug.transfer")
_warned: set[Path] = set()
_open: set[int] = set()


def lock_slot(name: str) -> int:
    """Return the number of the lock file for a name."""
    return xxh64(name.encode()).intdigest() % _NUM_LOCK_FILES


def state_directory(cache: Path) -> Path:
    """Return the state directory of a cache: a sibling if `make_sibling_state` made one, else inside."""
    sibling = _sibling_state(cache)
    return sibling if sibling.is_dir() else cache / STATE_DIR


def make_sibling_state(cache: Path) -> None:
    """Create the state directory beside a cache, so that the cache contains only the index and shards.

    It stays inside a cache that has one, that is a mount point, or whose parent is not writable: files are
    renamed from the state directory into the cache.
    """
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        is_new = not (cache / STATE_DIR).exists()
        if is_new and (not cache.exists() or cache.stat().st_dev == cache.parent.stat().st_dev):
            _sibling_state(cache).mkdir(parents=True, exist_ok=True)


def _sibling_state(cache: Path) -> Path:
    if cache.name in {"", ".."}:  # "." and "..", which have no siblings by name
        return cache / STATE_DIR
    return cache.with_name(f".{cache.name}{STATE_DIR}")


def lock_slot_path(directory: Path, slot: int) -> Path:
    """Return the path of a lock file."""
    return state_directory(directory) / f"lock.{slot:03d}"


def cache_lock(directory: Path, name: str) -> AbstractContextManager[None]:
    """Hold the lock for writing a file of a cache, against other processes and threads.

    On a file system without locks several may write it; each has a staging file of its own, so the result is
    complete all the same.
    """
    # Shards share a fixed number of lock files, which are never removed.
    path = lock_slot_path(directory, lock_slot(name))
    return file_lock(path, f"to fetch {name}")


@contextmanager
def file_lock(
    path: Path, purpose: str, *, required: bool = False, pause: float = LOCK_POLL_SECONDS
) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary, for a `purpose` named in errors.

    While it waits, polling at least every `pause` seconds, other jobs of the thread pool may run;
    cancellation ends the wait.

    Raises:
        StorageError: If another process holds it for too long, or there are no locks and `required`.
    """
    with _open_lock(path) as descriptor:
        _wait(descriptor, path, purpose, required=required, max_pause=pause)
        yield


@contextmanager
def try_file_lock(path: Path, *, create: bool = True) -> Iterator[bool]:
    """Try to hold the lock of a file, and yield whether it is held; False if there are no locks.

    Unless it may `create` the file, FileNotFoundError is raised if there is none.
    """
    with _open_lock(path, create=create) as descriptor:
        try:
            is_held = _lock(descriptor)
        except OSError as error:
            if error.errno not in _NO_LOCKS_ERRNOS:
                raise
            is_held = False
        yield is_held


def _wait(descriptor: int, path: Path, purpose: str, *, required: bool, max_pause: float) -> None:
    """Wait for a lock; do nothing if the file system has none, unless it is `required`."""
    check()
    try:
        if _lock(descriptor):
            return
        with idle():
            end, pause = time.monotonic() + _MAX_LOCK_SECONDS, 0.001
            while time.monotonic() <= end:
                sleep(pause)
                if _lock(descriptor):
                    return
                pause = min(2 * pause, max_pause)
                if abandoned():
                    raise StorageError(f"{path}: the parent process has ended")
    except OSError as error:
        if error.errno not in _NO_LOCKS_ERRNOS:
            raise
        if required:
            raise StorageError(
                f"{path}: this file system has no locks, which cache_limit= needs; "
                "choose a local= on another one, or leave the limit out"
            ) from error
        _warn_once(path.parent)
        return
    raise StorageError(
        f"{path} has been held by another process for {_MAX_LOCK_SECONDS} s, {purpose}; "
        "see what that process waits for"
    )


def _warn_once(directory: Path) -> None:
    if directory not in _warned:
        _warned.add(directory)
        _LOG.warning(
            "%s: this file system has no locks: processes that want one shard at the same time each "
            "download it, and what killed ones leave stays",
            directory,
        )


@contextmanager
def _open_lock(path: Path, *, create: bool = True) -> Iterator[int]:
    """Open a lock file, and yield its descriptor; unlock and close it afterwards."""
    flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    _open.add(descriptor)
    try:
        yield descriptor
    finally:
        if descriptor in _open:  # else closed after a fork
            _open.discard(descriptor)
            with suppress(OSError):
                # Closing is not enough: a child that is starting may have a copy of the descriptor.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD_ERRNOS:
            return False
        raise
    return True


def _close_in_child() -> None:
    # A lock lasts while any process has its file open: a child must not prolong its parent's.
    while _open:
        os.close(_open.pop())


os.register_at_fork(after_in_child=_close_in_child)
