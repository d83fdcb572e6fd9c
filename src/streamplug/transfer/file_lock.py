"""File locks between processes; the operating system releases them when the holder dies."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xxhash import xxh64

from streamplug.errors import StorageError
from streamplug.plugin_kit.cancellation import abandoned, check, idle, sleep

STATE_DIR = ".streamplug"

_LOCKS = 251
_LOCK_SECONDS = 1800
LOCK_POLL_SECONDS = 0.05

_HELD = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LOG = logging.getLogger("streamplug.transfer")
_warned: set[Path] = set()
_open: set[int] = set()


def lock_slot(name: str) -> int:
    """Return the number of the lock file for a name."""
    return xxh64(name.encode()).intdigest() % _LOCKS


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


@contextmanager
def cache_lock(directory: Path, name: str) -> Iterator[None]:
    """Hold the lock for writing a file of a cache, against other processes and threads.

    On a file system without locks several may write it; each has a staging file of its own, so the result is
    complete all the same.
    """
    # Shards share a fixed number of lock files, which are never removed.
    path = lock_slot_path(directory, lock_slot(name))
    with file_lock(path, f"to fetch {name}"):
        yield


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
    descriptor = _opened(path)
    try:
        locked = _wait(descriptor, path, purpose, required=required, longest=pause)
        try:
            yield
        finally:
            if locked:
                _unlock(descriptor)
    finally:
        _close(descriptor)


@contextmanager
def try_file_lock(path: Path) -> Iterator[bool]:
    """Try to hold the lock of a file, and yield whether it is held; False if there are no locks."""
    descriptor = _opened(path)
    try:
        try:
            free = _lock(descriptor)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            free = False
        try:
            yield free
        finally:
            if free:
                _unlock(descriptor)
    finally:
        _close(descriptor)


def _wait(descriptor: int, path: Path, purpose: str, *, required: bool, longest: float) -> bool:
    """Wait for a lock; return False if the file system has none."""
    check()
    try:
        if _lock(descriptor):
            return True
        with idle():
            end, pause = time.monotonic() + _LOCK_SECONDS, 0.001
            while time.monotonic() <= end:
                sleep(pause)
                if _lock(descriptor):
                    return True
                pause = min(2 * pause, longest)
                if abandoned():
                    raise StorageError(f"{path}: the process that this one works for is gone")
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        if required:
            raise _lockless(path) from error
        _warn(path)
        return False
    raise StorageError(
        f"{path} has been held by another process for {_LOCK_SECONDS} s, {purpose}; "
        "see what that process waits for"
    )


def _lockless(path: Path) -> StorageError:
    return StorageError(
        f"{path}: this file system has no locks, which cache_limit= needs; "
        "choose a local= on another one, or leave the limit out"
    )


def _warn(path: Path) -> None:
    if path.parent not in _warned:
        _warned.add(path.parent)
        _LOG.warning(
            "%s: this file system has no locks: processes that want one shard at the same time each "
            "download it, and what killed ones leave stays",
            path.parent,
        )


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    _open.add(descriptor)
    return descriptor


def _close(descriptor: int) -> None:
    if descriptor in _open:  # else closed after a fork
        _open.discard(descriptor)
        os.close(descriptor)


def _forget_parent() -> None:
    # A lock lasts while any process has its file open: a child must not prolong its parent's.
    for descriptor in list(_open):
        _close(descriptor)


os.register_at_fork(after_in_child=_forget_parent)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            return False
        raise
    return True


def _unlock(descriptor: int) -> None:
    # Closing is not enough: a child that is starting may have a copy of the descriptor.
    if descriptor in _open:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
