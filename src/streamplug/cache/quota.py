"""How much room the shards of a local directory may take, and which of them go to make more.

Nothing is shared but files, all below ``.streamplug`` and changed under one lock:

- ``files`` names every file that was ever admitted. Only these are evicted: whatever else lies in the
  directory was put there by others, and may be the only copy.
- ``used`` is an upper bound of what they take together. Admissions add to it, and only when it comes to
  the limit are the files looked at. If it is missing, damaged or does not go with ``files``, they are
  looked at first: a killed process can make it too high, never too low.

When a file was used last is its time of modification.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from weakref import WeakValueDictionary

from streamplug.cache.staging import remove_stale_files, reserve_bytes, resize_reservation
from streamplug.interfaces.callback import ShardEvicted
from streamplug.plugin_kit.cancellation import Scope, check, inside
from streamplug.plugin_kit.disk import DISK_FULL_ERRNOS
from streamplug.plugin_kit.staging import commit_file
from streamplug.transfer.file_lock import LOCK_POLL_SECONDS, file_lock, state_directory
from streamplug.transfer.observer import emit

_LOG = logging.getLogger("streamplug.cache")
EXTRA_EVICTION_DIVISOR = 16
"""One of so many files goes beyond need, so that not every admission has to look at all of them."""
_PAUSE = 0.002
"""Seconds between two looks at a lock that is held no longer than that, as a rule."""
_FRESH = 2.0
_FRESH_LIST = "files.new"

CommitFile = Callable[[Path, Path], None]
"""Admits a finished staging file to the cache: (staging path, target path)."""

_warned: set[Path] = set()
_turns: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()


class CacheQuota:
    """The room that the shards of a local directory take; it has no state outside that directory."""

    def __init__(self, root: Path, limit: int | None) -> None:
        """Look after `root`; `limit` is in bytes, or None for no limit."""
        self.root = root
        self.limit = limit
        self._files = state_directory(root) / "files"
        self._used = state_directory(root) / "used"

    @contextmanager
    def reserve(self, name: str, size: int) -> Iterator[CommitFile]:
        """Set bytes aside for files that are about to be made, evicting others if need be.

        If all others are in the making too, the limit is exceeded by those rather than waiting.

        Args:
            name: Whose `cache_lock` is held, so that others see that the bytes are still wanted.
            size: How many.

        Yields:
            What gives a finished temporary file its place: called with its path and that place.
        """
        if self.limit is None:
            yield self._commit
            return
        with self._lock():
            self._make_room(size, self.limit)
            reservation = reserve_bytes(self.root, name, size)

        def commit(part: Path, path: Path) -> None:
            nonlocal reservation, size
            bytes_ = part.stat().st_size
            with self._lock():
                self._place(part, path)
                size = max(size - bytes_, 0)
                reservation = resize_reservation(reservation, size)

        try:
            yield commit
        finally:
            # Whoever stops must do this too: within a scope of its own, nothing interrupts it.
            with inside(Scope()), self._lock():
                reservation.unlink(missing_ok=True)
                self._settle(-size, self.limit)

    def shrink(self, size: int) -> None:
        """Evict half of all, and at least so many bytes, because others have filled the disk."""
        if self.limit is not None:
            with self._lock():
                taken = sum(bytes_ for _, bytes_, _ in self._look()[1])
                self._note(self._evict(max(min(taken - size, taken // 2), 0)))

    def remove(self, paths: Sequence[Path]) -> None:
        """Evict some files, whenever they were used last; what is known to be used stays an upper bound."""
        for path in paths:
            with suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                emit(ShardEvicted(str(path), size))

    def remove_stale(self) -> None:
        """Remove what dead processes have left."""
        fresh = self._files.with_name(_FRESH_LIST)
        if fresh.exists():
            with self._lock():
                fresh.unlink(missing_ok=True)
        remove_stale_files(self.root)

    def _commit(self, part: Path, path: Path) -> None:
        with self._lock():
            self._place(part, path)

    def _place(self, part: Path, path: Path) -> None:
        used = self._known()
        # First, lest it is killed in between: a name without a file does no harm.
        self._append(path)
        commit_file(part, path)
        # Without a limit nobody counted this one: what was known does not hold any more.
        if used is not None and self.limit is not None:
            self._note(used)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        # Threads of this process take turns: to look at a lock again and again costs more.
        turn = _turns.setdefault(self.root, threading.Lock())
        while not turn.acquire(timeout=LOCK_POLL_SECONDS):
            check()
        try:
            with file_lock(
                state_directory(self.root) / "lock.room",
                "to make room",
                required=self.limit is not None,
                pause=_PAUSE,
            ):
                yield
        finally:
            turn.release()

    # -- what is used ---------------------------------------------------------

    def _known(self) -> int | None:
        """Return the upper bound, if there is one for the files as they are listed now."""
        try:
            text = self._used.read_text("ascii")
            listed, used = map(int, text.split())
            known = text.endswith("\n") and used >= 0 and listed == self._files.stat().st_size
        except (OSError, ValueError):
            return None
        return used if known else None

    def _note(self, used: int) -> None:
        with _unless_full():  # then nothing is known, and all is looked at the next time
            self._files.touch()
            self._used.write_text(f"{self._files.stat().st_size} {max(used, 0)}\n", "ascii")

    def _append(self, path: Path) -> None:
        name = path.relative_to(self.root).as_posix()
        with self._files.open("a+b") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - 1, 0))
            torn = stream.read() not in {b"", b"\n"}  # its writer found no room
            stream.write(b"\n" * torn + json.dumps(name).encode() + b"\n")

    def _listed(self) -> list[str]:
        """Return the distinct names of all that was admitted and may still be there."""
        try:
            lines = self._files.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        names: dict[str, None] = {}
        for line in lines:
            with suppress(ValueError):
                name = json.loads(line)
                if isinstance(name, str) and _inside(name):
                    names[name] = None
        return list(names)

    # -- eviction ---------------------------------------------------------------

    def _make_room(self, size: int, limit: int) -> None:
        used = self._known()
        if used is None or used + size > limit:
            used = self._evict(limit - size - remove_stale_files(self.root))
        self._note(used + size)

    def _settle(self, change: int, limit: int) -> None:
        """Take account of what came of a reservation, and of all those that did not fit beside it."""
        used = self._known()
        fits = used is not None and used + change <= limit
        self._note(used + change if used is not None and fits else self._evict(limit))

    def _look(self) -> tuple[int, list[tuple[int, int, str]]]:
        """Return the bytes in the making, and (last use, bytes, name) of all files, oldest first."""
        now = time.time_ns()
        found = []
        for name in self._listed():
            with suppress(FileNotFoundError, NotADirectoryError):
                status = os.lstat(self.root / name)
                if status.st_mtime_ns > now:  # the clock was set back: let it age from now on
                    with suppress(OSError):
                        os.utime(self.root / name, ns=(now, now))
                found.append((status.st_mtime_ns, status.st_size, name))
        found.sort()
        return remove_stale_files(self.root), found

    def _evict(self, most: int) -> int:
        """Evict the files not used for longest, until `most` bytes are left.

        Returns:
            The bytes of those, and of what is in the making.
        """
        aside, found = self._look()
        taken = sum(bytes_ for _, bytes_, _ in found)
        more = len(found) // EXTRA_EVICTION_DIVISOR
        gone, youngest = 0, 0
        for last_use, bytes_, name in found:
            if taken <= most:
                if not gone or more == 0:
                    break
                more -= 1
            (self.root / name).unlink(missing_ok=True)
            emit(ShardEvicted(str(self.root / name), bytes_))
            taken -= bytes_
            gone, youngest = gone + 1, last_use
        self._rewrite([name for _, _, name in found[gone:]])
        self._warn_if_busy(youngest)
        return taken + aside

    def _rewrite(self, names: list[str]) -> None:
        fresh = self._files.with_name(_FRESH_LIST)
        with _unless_full():  # then what is gone is still listed, which does no harm
            fresh.write_bytes(b"".join(json.dumps(name).encode() + b"\n" for name in names))
            commit_file(fresh, self._files)

    def _warn_if_busy(self, youngest: int) -> None:
        if abs(time.time_ns() - youngest) < _FRESH * 1e9 and self.root not in _warned:
            _warned.add(self.root)
            _LOG.warning(
                "%s: cache_limit=%s is less than what is being read at once: shards go before they are "
                "read, and are downloaded again; raise it, or lower predownload= or the workers",
                self.root,
                self.limit,
            )


@contextmanager
def _unless_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


# A thread that the child lacks may hold one of the locks.
os.register_at_fork(after_in_child=_turns.clear)
