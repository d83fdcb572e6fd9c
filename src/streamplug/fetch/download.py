"""Downloads one file, and gives up when nothing arrives any more, or nobody waits for it."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from streamplug.errors import HashMismatchError, NotFound, StorageError, Transient
from streamplug.fetch import ranged
from streamplug.fetch.files import FULL
from streamplug.fetch.retry import retrying
from streamplug.interfaces import Storage
from streamplug.interfaces.cancel import Scope, check, ending, inside
from streamplug.types import FileInfo

_NEAR: frozenset[int] = FULL | {errno.EROFS, errno.EMFILE, errno.ENFILE}
_GLANCE = 1.0
_LOG = logging.getLogger("streamplug.fetch")


class StalledError(Transient):
    """Nothing arrived for too long."""


def download(
    storage: Storage,
    file: FileInfo,
    path: Path,
    *,
    retries: int,
    timeout: float,
    check_copy: Callable[[Path], None] = lambda _: None,
) -> None:
    """Download a file, a large one in several parts at once if the storage can.

    Args:
        storage: Where it is.
        file: Which, and its size.
        path: The local file; its directory exists, and nobody else writes files whose names begin
            with its.
        retries: How often an attempt that fails in passing is repeated.
        timeout: Seconds after which an attempt fails during which nothing arrived.
        check_copy: Raises a CorruptShardError if a copy is not what it should be; that attempt then
            has failed, too.

    Raises:
        StorageError: If it cannot be had.
        CorruptShardError: If what comes is not what it should be.
        OSError: If the local file cannot be written.
    """
    url = storage.url_of(file.basename)

    def attempt(work: Callable[[Path], bool]) -> bool:
        return _attempt(work, url, path, timeout, check_copy)

    def whole(part: Path) -> bool:
        storage.download(file.basename, part)
        return True

    if file.bytes >= ranged.LARGE:
        try:
            if _in_parts(storage, file, retries, attempt):
                return
        except HashMismatchError as error:
            if not retries:
                raise
            _LOG.warning("%s: downloading it as a whole", error)
            retries -= 1
    retrying(lambda: attempt(whole), retries)


def _in_parts(
    storage: Storage,
    file: FileInfo,
    retries: int,
    attempt: Callable[[Callable[[Path], bool]], bool],
) -> bool:
    """Download a file in parts; returns whether that worked."""

    def parts(part: Path) -> bool:
        return ranged.download_parts(storage, file, part, retries)

    try:
        return attempt(parts)
    except StalledError as error:
        # Parts are seen only when they are complete; as a whole, a slow one is told from none.
        _LOG.warning("%s: downloading it as a whole", error)
        return False


def _attempt(
    work: Callable[[Path], bool],
    url: str,
    path: Path,
    timeout: float,
    check_copy: Callable[[Path], None],
) -> bool:
    # Not to `path` itself: an attempt that was given up may write on for as long as it likes.
    part = path.with_name(f"{path.name}-{token_hex(4)}")
    try:
        worked = _watched(work, url, part, timeout)
        if worked:
            check_copy(part)
            part.replace(path)
        return worked
    except StorageError as error:
        _raise_local(error, part)
        raise
    finally:
        part.unlink(missing_ok=True)


def _watched(work: Callable[[Path], bool], url: str, part: Path, timeout: float) -> bool:
    """Do something that writes a file, for as long as somebody waits for it and something arrives."""
    results: list[bool] = []
    errors: list[BaseException] = []
    done, scope = threading.Event(), Scope()

    def run() -> None:
        try:
            with inside(scope):
                results.append(work(part))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)
        finally:
            done.set()

    with ending(scope):
        # A client that hangs may not listen to its scope; as a daemon, it keeps no process from ending.
        threading.Thread(target=run, name="streamplug-download", daemon=True).start()
        _wait(done, url, part, timeout)
    if errors:
        try:
            raise errors.pop()
        finally:
            # Kept in a frame that it knows, an error would keep all its callers' values alive.
            del errors
    return results[0]


def _wait(done: threading.Event, url: str, part: Path, timeout: float) -> None:
    size, since = 0, time.monotonic()
    while not done.wait(min(_GLANCE, timeout / 4)):
        check()
        arrived, now = _arrived(part), time.monotonic()
        if arrived != size:
            size, since = arrived, now
        elif now - since >= timeout:
            raise StalledError(
                f"{url}: nothing arrived for {timeout:g} s, {size} bytes before; see "
                "the connection, or pass a longer download_timeout="
            )


def _arrived(part: Path) -> int:
    """Return the bytes of a file, and of those that some clients write first, named after it."""
    total = 0
    for path in part.parent.glob(f"{part.name}*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _raise_local(error: BaseException, part: Path) -> None:
    """Raise what the system said of the local file, if a storage took that for its own failure."""
    if isinstance(error, NotFound) and not part.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(part)) from error
    for cause in _behind(error):
        number = getattr(cause, "errno", None)
        if number in _NEAR:
            raise OSError(number, os.strerror(number), str(part)) from error


def _behind(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
