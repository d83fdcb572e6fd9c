"""Downloads one file, and gives up when nothing arrives any more, or nobody waits for it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

from streamplug.errors import NotFound, StorageError
from streamplug.fetch import ranged
from streamplug.fetch.files import FULL
from streamplug.fetch.retry import retrying
from streamplug.fetch.stall import StalledError, bytes_of, unless_stalled
from streamplug.interfaces import Storage
from streamplug.types import FileInfo

_NEAR: frozenset[int] = FULL | {errno.EROFS, errno.EMFILE, errno.ENFILE}
_LOG = logging.getLogger("streamplug.fetch")


def download(storage: Storage, file: FileInfo, path: Path, *, retries: int, timeout: float) -> None:
    """Download a file, a large one in several parts at once if the storage can.

    Args:
        storage: Where it is.
        file: Which, and its size.
        path: The local file; its directory exists, and nobody else writes files whose names begin
            with its.
        retries: How often an attempt that fails in passing is repeated.
        timeout: Seconds after which an attempt fails during which nothing arrived.

    Raises:
        StorageError: If it cannot be had.
        CorruptShardError: If it comes in parts and is shorter than the index says.
        OSError: If the local file cannot be written.
    """
    if file.bytes >= ranged.LARGE and _in_parts(storage, file, path, retries, timeout):
        return

    def whole(part: Path) -> bool:
        storage.download(file.basename, part)
        return True

    url = storage.url_of(file.basename)
    retrying(lambda: attempt(whole, url, path, timeout), retries)


def _in_parts(storage: Storage, file: FileInfo, path: Path, retries: int, timeout: float) -> bool:
    """Download a file in parts; returns whether that worked."""

    def parts(part: Path) -> bool:
        return ranged.download_parts(storage, file, part, retries)

    try:
        return attempt(parts, storage.url_of(file.basename), path, timeout)
    except StalledError as error:
        # Parts are seen only when they are complete; as a whole, a slow one is told from none.
        _LOG.warning("%s: downloading it as a whole", error)
        return False


def attempt(work: Callable[[Path], bool], url: str, path: Path, timeout: float) -> bool:
    """Have a file made by something that says whether it did, unless that stalls.

    Raises:
        StalledError: If nothing arrived for too long.
        OSError: If the local file cannot be written.
        BaseException: What `work` raised.
    """
    # Not to `path` itself: an attempt that was given up may write on for as long as it likes.
    part = path.with_name(f"{path.name}-{token_hex(4)}")
    try:
        worked = unless_stalled(lambda: work(part), url, timeout, lambda: bytes_of(part))
        if worked:
            part.replace(path)
        return worked
    except StorageError as error:
        _raise_local(error, part)
        raise
    finally:
        part.unlink(missing_ok=True)


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
