"""Quota and LRU eviction of the shard files in a cache.

Processes share only files below ``.streamplug``, changed under one lock:

- ``files`` lists every file ever committed. Only these are evicted: other files in the directory are the
  user's, and may be the only copy.
- ``used`` is an upper bound of their total size, so that a commit need not stat them all. They are
  measured when the bound reaches the limit, or when it is missing, damaged or does not match ``files``.
  A killed process can leave it too high, never too low.

The time of last use of a file is its modification time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from weakref import WeakValueDictionary

from streamplug.cache.staging import remove_stale_files, reserve_bytes, resize_reservation
from streamplug.interfaces import ShardEvicted
from streamplug.plugin_kit import Scope, check, commit_file, inside, is_full_disk
from streamplug.transfer import (
    LOCK_POLL_SECONDS,
    LockTimeoutError,
    emit,
    file_lock,
    state_directory,
    warn_stalled,
)

_UNUSED_SECONDS = 7 * 24 * 3600  # records of other machines that share the directory are younger
_LOG = logging.getLogger("streamplug.cache")
EXTRA_EVICTION_DIVISOR = 16  # evict 1/16 of the files beyond need, to stat them less often
_MAX_LOCK_POLL_SECONDS = 0.002
_MAX_LOCK_SECONDS = 30.0
_RECENT_USE_SECONDS = 2.0
_FULL_DISK_SECONDS = 300.0  # then it is tried again whether there is more room
_NEW_LIST = "files.new"


@cache
def boot_id() -> str:
    """Return what identifies the current boot of the machine; empty if the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


class BootRecord:
    """The files of a cache at `root` that were admitted or verified since the machine started.

    Files are not synced to the disk when they are admitted. So after a loss of power, one may have its name
    and size without its content. ``boot-ID`` in the state directory names those that were admitted or
    verified while the machine had this boot ID; others are verified at their first use.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._names: set[str] = set()
        self._offset = 0  # of what other processes may have added

    def __contains__(self, name: str) -> bool:
        if name not in self._names and boot_id():
            self._read()
        return name in self._names or not boot_id()

    def add(self, name: str) -> None:
        """Record a file by its name below the root."""
        if name not in self:
            self._names.add(name)
            with suppress(OSError), self._path.open("ab") as stream:  # else verified once more
                # The line before may be torn, as the disk was full.
                stream.write(b"\n" + json.dumps(name).encode() + b"\n")

    def remove_old(self) -> None:
        """Remove the records of earlier boots."""
        for path in state_directory(self._root).glob("boot-*"):
            if path != self._path and time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
                path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return state_directory(self._root) / f"boot-{boot_id()}"

    def _read(self) -> None:
        with suppress(OSError), self._path.open("rb") as stream:
            stream.seek(self._offset)
            lines, newline, _ = stream.read().rpartition(b"\n")
            self._offset += len(lines + newline)
            for line in lines.splitlines():
                with suppress(ValueError, RecursionError):
                    self._names.add(str(json.loads(line)))


CommitFile = Callable[[Path, Path], None]
"""Commits a finished staging file to the cache: (staging path, target path)."""

_warned: set[Path] = set()
_mutexes: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()


class CacheQuota:
    """Quota of a cache directory; all state is in that directory."""

    def __init__(self, root: Path, limit: int | None) -> None:
        """Manage `root` with a limit in bytes; None is unlimited."""
        self.root = root
        self.limit = limit
        self.boot = BootRecord(root)
        # What had room when the disk was full last, in bytes, and when that was.
        self._full_disk = sys.maxsize, 0.0

    # Not stored: another process may have created the state directory beside the cache meanwhile.
    @property
    def _files(self) -> Path:
        return state_directory(self.root) / "files"

    @property
    def _used(self) -> Path:
        return state_directory(self.root) / "used"

    @contextmanager
    def reserve(self, name: str, size: int, *, evict: bool = True) -> Iterator[CommitFile]:
        """Reserve bytes for files about to be written, and yield a function that commits them.

        Other files are evicted if needed; if all other bytes are reserved, too, or nothing may be evicted,
        the limit is exceeded rather than waiting. The caller holds the `cache_lock` of `name`, which marks
        the reservation as live.
        """
        if self.limit is None:
            yield self._commit
            return
        limit = self._usable_bytes() if evict else sys.maxsize
        with self._lock() as is_held:
            if is_held:
                self._make_room(size, limit)
            reservation = reserve_bytes(self.root, name, size)
            counted = size if is_held else 0  # of the reservation, in `used`

        def commit(part: Path, path: Path) -> None:
            nonlocal reservation, size, counted
            file_size = part.stat().st_size
            with self._lock() as is_held:
                self._place(part, path, max(file_size - counted, 0), is_held=is_held)
                size, counted = max(size - file_size, 0), max(counted - file_size, 0)
                reservation = resize_reservation(reservation, size)

        try:
            yield commit
        finally:
            # In a scope of its own, as a cancelled job must release its reservation, too.
            with inside(Scope()), self._lock() as is_held:
                reservation.unlink(missing_ok=True)
                if is_held:
                    self._release(counted, limit)

    def shrink(self, size: int) -> None:
        """Evict half of the used bytes, and at least `size`, to make space on a full disk.

        No more than these are used for a while: other threads would take the space at once, else.
        """
        if self.limit is not None:
            with self._lock() as is_held:
                if not is_held:
                    return
                used = sum(file_size for _, file_size, _ in self._stat_files())
                self._full_disk = used, time.monotonic()
                self._write_used(self._evict(max(min(used - size, used // 2), 0)))

    def remove(self, paths: Sequence[Path]) -> None:
        """Evict some files regardless of their last use; ``used`` remains an upper bound."""
        for path in paths:
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                emit(ShardEvicted(str(path), size))

    def remove_stale(self) -> None:
        """Remove the staging files of dead processes."""
        new_list = self._files.with_name(_NEW_LIST)
        if new_list.exists():
            with self._lock() as is_held:
                if is_held:
                    new_list.unlink(missing_ok=True)
        self.boot.remove_old()
        remove_stale_files(self.root)

    def _usable_bytes(self) -> int:
        """Return the limit, or for a while less if the disk was full."""
        limit, (usable, found) = sys.maxsize if self.limit is None else self.limit, self._full_disk
        return min(limit, usable) if time.monotonic() - found < _FULL_DISK_SECONDS else limit

    def _commit(self, part: Path, path: Path) -> None:
        with self._lock() as is_held:
            self._place(part, path, is_held=is_held)

    def _place(self, part: Path, path: Path, unreserved_bytes: int = 0, *, is_held: bool) -> None:
        used = self._read_used()
        # List it first: if killed in between, a name without a file is harmless.
        self._append(path)
        commit_file(part, path)
        self.boot.add(path.relative_to(self.root).as_posix())
        # Without a limit this file is not counted, which makes the old bound invalid.
        if used is not None and self.limit is not None and is_held:
            self._write_used(used + unreserved_bytes)

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Hold the lock of the quota; yield False if its holder makes no progress.

        Without it, files are only listed, which makes ``used`` invalid: the limit may be exceeded.
        """
        # A mutex for the threads of this process, as polling the file lock costs more.
        mutex = _mutexes.setdefault(self.root, threading.Lock())
        while not mutex.acquire(timeout=LOCK_POLL_SECONDS):
            check()
        try:
            path = state_directory(self.root) / "lock.room"
            lock = file_lock(
                path,
                "to make room",
                required=self.limit is not None,
                pause=_MAX_LOCK_POLL_SECONDS,
                max_seconds=_MAX_LOCK_SECONDS,
            )
            with ExitStack() as held:
                is_held = True
                try:
                    held.enter_context(lock)
                except LockTimeoutError as error:
                    warn_stalled(path, f"{error}; until then, nothing is evicted from the cache")
                    is_held = False
                yield is_held
        finally:
            mutex.release()

    def _read_used(self) -> int | None:
        """Return the bound of used bytes; None if it does not match ``files``."""
        try:
            text = self._used.read_text("ascii")
            list_size, used = map(int, text.split())
            is_valid = text.endswith("\n") and used >= 0
            return used if is_valid and list_size == self._files.stat().st_size else None
        except (OSError, ValueError):
            return None

    def _write_used(self, used: int) -> None:
        with _ignore_full_disk():  # the bound is invalid then: the next caller measures
            self._files.touch()
            self._used.write_text(f"{self._files.stat().st_size} {max(used, 0)}\n", "ascii")

    def _append(self, path: Path) -> None:
        name = path.relative_to(self.root).as_posix()
        with self._files.open("a+b") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - 1, 0))
            is_torn = stream.read() not in {b"", b"\n"}  # the disk was full
            stream.write(b"\n" * is_torn + json.dumps(name).encode() + b"\n")

    def _read_list(self) -> list[str]:
        """Return the distinct names of committed files."""
        try:
            lines = self._files.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        names: dict[str, None] = {}
        for line in lines:
            with suppress(ValueError, RecursionError):
                name = json.loads(line)
                if isinstance(name, str) and _is_below_root(name):
                    names[name] = None
        return list(names)

    def _make_room(self, size: int, limit: int) -> None:
        used = self._read_used()
        if used is None or used + size > limit:
            used = self._evict(limit - size - remove_stale_files(self.root))
        self._write_used(used + size)

    def _release(self, size: int, limit: int) -> None:
        """Release the rest of a reservation; evict if the limit is exceeded."""
        used = self._read_used()
        if used is None or used - size > limit:
            self._write_used(self._evict(limit))
        else:
            self._write_used(used - size)

    def _stat_files(self) -> list[tuple[int, int, str]]:
        """Return (mtime in ns, bytes, name) of all files, least recently used first."""
        now = time.time_ns()
        files = []
        for name in self._read_list():
            # The list may be damaged: a name that cannot be one is no file.
            with suppress(OSError, ValueError):
                status = os.lstat(self.root / name)
                if not S_ISREG(status.st_mode):
                    continue
                if status.st_mtime_ns > now:  # the clock was set back
                    with suppress(OSError):
                        os.utime(self.root / name, ns=(now, now))
                files.append((status.st_mtime_ns, status.st_size, name))
        return sorted(files)

    def _evict(self, max_bytes: int) -> int:
        """Evict least recently used files down to `max_bytes`; return used plus reserved bytes."""
        listed_bytes = self._files.stat().st_size if self._files.exists() else 0
        files = self._stat_files()
        used = sum(size for _, size, _ in files)
        extra = len(files) // EXTRA_EVICTION_DIVISOR
        num_evicted, last_use = 0, 0
        for last_use_of_file, size, name in files:
            if used <= max_bytes:
                if not num_evicted or extra == 0:
                    break
                extra -= 1
            (self.root / name).unlink(missing_ok=True)
            emit(ShardEvicted(str(self.root / name), size))
            used -= size
            num_evicted, last_use = num_evicted + 1, last_use_of_file
        self._write_list([name for _, _, name in files[num_evicted:]], listed_bytes)
        if abs(time.time_ns() - last_use) < _RECENT_USE_SECONDS * 1e9:
            self._warn_once()
        return used + remove_stale_files(self.root)

    def _write_list(self, names: list[str], listed_bytes: int) -> None:
        """Replace the list; what was added behind `listed_bytes`, without the lock, is kept."""
        new_list = self._files.with_name(_NEW_LIST)
        with _ignore_full_disk():  # evicted files stay listed then, which is harmless
            lines = b"".join(json.dumps(name).encode() + b"\n" for name in names)
            added = self._files.read_bytes()[listed_bytes:] if self._files.exists() else b""
            new_list.write_bytes(lines + added)
            commit_file(new_list, self._files)

    def _warn_once(self) -> None:
        if self.root not in _warned:
            _warned.add(self.root)
            usable = self._usable_bytes()
            is_full = usable != self.limit
            _LOG.warning(
                "%s: %s is less than the shards in use at once: shards are evicted before they are read, and "
                "downloaded again; %s, or lower predownload= or the number of workers",
                self.root,
                f"room for {usable} bytes on a full disk" if is_full else f"cache_limit={usable}",
                "make room on the disk" if is_full else "raise it",
            )


@contextmanager
def _ignore_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_full_disk(error):
            raise


def _is_below_root(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


# A lock may be held by a thread that does not exist in the child.
os.register_at_fork(after_in_child=_mutexes.clear)
