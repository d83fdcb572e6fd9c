"""File locks between processes; the operating system releases them when the holder dies."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

from xxhash import xxh64

from streamplug.errors import StorageError
from streamplug.plugin_kit import abandoned, check, idle, sleep

STATE_DIR = ".streamplug"
STAGING_DIR = "tmp"
"""Name of the directory of staging files in the state directory; see `streamplug.cache.staging`."""

_NUM_LOCK_FILES = 251
_MAX_NAME_BYTES = 255  # of a file on common file systems
_MAX_LOCK_SECONDS = 1800
LOCK_POLL_SECONDS = 0.05
_HOLDER_BYTES = 112

_HELD_ERRNOS = {errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK}
_NO_LOCKS_ERRNOS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_LOG = logging.getLogger("streamplug.transfer")
_warned: set[Path | str] = set()
# By descriptor of each lock that this process has open; the values tell acquisitions apart.
_open: dict[int, object] = {}
_stalled: dict[Path, str] = {}  # the acquisitions of locks that made no progress


class LockTimeoutError(StorageError):
    """The holder of a lock made no progress for too long."""


class _HeldSlots(threading.local):
    def __init__(self) -> None:
        self.by_name: dict[str, int] = {}


_held_slots = _HeldSlots()


def lock_slot(name: str) -> int:
    """Return the number of the lock file for a name, or of the one that this thread holds in its place."""
    slot = _held_slots.by_name.get(name)
    return _slot(name) if slot is None else slot


def _slot(name: str) -> int:
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
    name = f".{cache.name}{STATE_DIR}"
    # "." and ".." have no siblings by name.
    if cache.name in {"", ".."} or len(os.fsencode(name)) > _MAX_NAME_BYTES:
        return cache / STATE_DIR
    return cache.with_name(name)


def lock_slot_path(directory: Path, slot: int) -> Path:
    """Return the path of a lock file."""
    return state_directory(directory) / f"lock.{slot:03d}"


@contextmanager
def cache_lock(directory: Path, name: str, stall_seconds: float | None = None) -> Iterator[None]:
    """Hold the lock for writing a file of a cache, against other processes and threads.

    If the staging files of its holder do not change for `stall_seconds`, half an hour by default, as when
    that process is stopped or its disk is dead, another lock takes its place. Then, and on a file system
    without locks, several may write the file; each has a staging file of its own, so the result is complete
    all the same.
    """
    with ExitStack() as held:
        for turn in count():
            # Shards share a fixed number of lock files, which are never removed.
            slot = _slot(f"{name} {turn}" if turn else name)
            path = lock_slot_path(directory, slot)
            try:
                held.enter_context(
                    file_lock(
                        path,
                        f"to fetch {name}",
                        max_seconds=stall_seconds,
                        progress=partial(_staged_files, directory, slot),
                    )
                )
                break
            except LockTimeoutError as error:
                warn_stalled(path, f"{error}; fetching {name} without it")
        _held_slots.by_name[name] = slot
        held.callback(_held_slots.by_name.pop, name, None)
        yield


def warn_stalled(path: Path, message: str) -> None:
    """Warn of a lock whose holder makes no progress, once for each process that holds one."""
    holder = _stalled.get(path, "").rpartition(" ")[0] or str(path)
    if holder not in _warned:
        _warned.add(holder)
        _LOG.warning(message)


def _staged_files(directory: Path, slot: int) -> list[tuple[str, int, int]]:
    """Return name, size and modification time of the staging files of a lock's holder."""
    files = []
    for path in (state_directory(directory) / STAGING_DIR).glob(f"{slot:03d}-*"):
        with suppress(OSError):
            status = path.stat()
            files.append((path.name, status.st_size, status.st_mtime_ns))
    return files


@contextmanager
def file_lock(
    path: Path,
    purpose: str,
    *,
    required: bool = False,
    pause: float = LOCK_POLL_SECONDS,
    max_seconds: float | None = None,
    progress: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary, for a `purpose` named in errors.

    While it waits, polling at least every `pause` seconds, other jobs of the thread pool may run;
    cancellation ends the wait.

    Raises:
        LockTimeoutError: If another process holds it for `max_seconds`, half an hour by default, in which
            the result of `progress` does not change; at once if that was so before.
        StorageError: If there are no locks and `required`.
    """
    limit = _MAX_LOCK_SECONDS if max_seconds is None else max_seconds
    with _open_lock(path) as descriptor:
        if _wait(descriptor, path, limit, progress, required=required, pause=pause):
            with suppress(OSError):
                # The process, the host and the time name this acquisition.
                name = f"{os.getpid()} {socket.gethostname()[:64]} {time.time_ns()}"
                os.pwrite(descriptor, name.ljust(_HOLDER_BYTES).encode(), 0)
            yield
            return
        holder = _stalled[path] = _read_holder(descriptor)
    process, _, host = holder.rpartition(" ")[0].partition(" ")
    by = f"process {process} on {host}" if host else "another process"
    raise LockTimeoutError(
        f"{path} has been held by {by} for {limit:g} s, {purpose}; see what that process waits for"
    )


def _read_holder(descriptor: int) -> str:
    try:
        return os.pread(descriptor, _HOLDER_BYTES, 0).decode("ascii", "replace").strip()
    except OSError:
        return ""


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


@contextmanager
def try_directory_lock(directory: Path) -> Iterator[bool]:
    """Try to lock a directory itself, without a file; yield whether no one else holds the lock.

    That is so, too, on a file system without locks.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _unlocked_and_closed(descriptor):
        try:
            is_held = _lock(descriptor)
        except OSError:  # NFS locks only what is open for writing
            is_held = True
        yield is_held


class _StallClock:
    """Measures for how long the result of a function has not changed."""

    def __init__(self, limit: float, progress: Callable[[], object]) -> None:
        self.limit = limit
        self._progress, self._state = progress, progress()
        self._changed = self._checked = time.monotonic()

    def has_stalled(self) -> bool:
        now = time.monotonic()
        if now - self._checked > min(1.0, self.limit / 4):  # not at each poll, as it lists files
            self._checked, state = now, self._progress()
            if state != self._state:
                self._state, self._changed = state, now
        return now - self._changed > self.limit


def _wait(
    descriptor: int,
    path: Path,
    limit: float,
    progress: Callable[[], object],
    *,
    required: bool,
    pause: float,
) -> bool:
    """Wait for a lock, and return whether it is held; True if the file system has none.

    Raises:
        StorageError: If it has none, and the lock is `required`.
    """
    check()
    try:
        if _lock(descriptor):
            return True
        if (holder := _stalled.get(path)) and holder == _read_holder(descriptor):
            return False
        with idle():
            # A lock that is taken by one after another makes progress.
            clock = _StallClock(limit, lambda: (_read_holder(descriptor), progress()))
            seconds = 0.001
            while True:
                sleep(seconds)  # which may run other jobs, and take long
                if _lock(descriptor):
                    return True
                if clock.has_stalled():
                    return False
                seconds = min(2 * seconds, pause)
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
        return True


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
    with _unlocked_and_closed(descriptor):
        yield descriptor


@contextmanager
def _unlocked_and_closed(descriptor: int) -> Iterator[None]:
    """Unlock and close a descriptor afterwards."""
    opened = _open[descriptor] = object()
    try:
        yield
    finally:
        # Else closed after a fork, and the number may be that of another lock by now.
        if _open.get(descriptor) is opened:
            del _open[descriptor]
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
        os.close(_open.popitem()[0])


os.register_at_fork(after_in_child=_close_in_child)
