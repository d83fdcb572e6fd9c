"""Download of a file with stall timeout, retries and cancellation."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

from streamplug.errors import HashMismatchError, NotFound, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin_kit.cancellation import current
from streamplug.plugin_kit.disk import DISK_FULL_ERRNOS
from streamplug.plugin_kit.staging import commit_file
from streamplug.transfer import ranges as ranged
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.watchdog import StalledError, bytes_of, run_with_timeout
from streamplug.types import FileInfo

_NEAR: frozenset[int] = DISK_FULL_ERRNOS | {errno.EROFS, errno.EMFILE, errno.ENFILE}
_LOG = logging.getLogger("streamplug.transfer")


def download(
    storage: Storage,
    file: FileInfo,
    path: Path,
    *,
    retries: int,
    timeout: float,
    check_copy: Callable[[Path], None] = lambda _: None,
) -> None:
    """Download a file, in parallel parts if it is large and the storage serves ranges.

    Staging files are beside `path`, with its name as prefix; its directory must exist. `timeout` is the stall
    timeout in seconds. `check_copy` raises CorruptShardError for a damaged copy, which fails the attempt.

    Raises:
        OSError: If the local file cannot be written.
    """
    url = storage.url_of(file.basename)

    def attempted(work: Callable[[Path], bool]) -> bool:
        return download_to_staging_file(work, url, path, timeout, check_copy)

    def whole(part: Path) -> bool:
        storage.download(file.basename, part)
        return True

    if file.bytes >= ranged.PARALLEL_DOWNLOAD_BYTES:
        try:
            if _in_parts(storage, file, retries, attempted):
                return
        except HashMismatchError as error:
            if not retries:
                raise
            _LOG.warning("%s: downloading it as a whole", error)
            retries -= 1
    call_with_retries(lambda: attempted(whole), retries)


def _in_parts(
    storage: Storage,
    file: FileInfo,
    retries: int,
    attempted: Callable[[Callable[[Path], bool]], bool],
) -> bool:
    def parts(part: Path) -> bool:
        return ranged.download_parts(storage, file, part, retries)

    try:
        return attempted(parts)
    except StalledError as error:
        # Progress inside a part is not visible; a download of the whole file shows it.
        _LOG.warning("%s: downloading it as a whole", error)
        return False


def download_to_staging_file(
    work: Callable[[Path], bool],
    url: str,
    path: Path,
    timeout: float,
    check_copy: Callable[[Path], None] = lambda _: None,
) -> bool:
    """Run `work` on a staging file with a stall timeout; rename the file to `path` if it returns True."""
    # A unique name, as an abandoned attempt may continue to write.
    part = path.with_name(f"{path.name}-{token_hex(4)}")

    def made() -> bool:
        try:
            return work(part)
        finally:
            scope = current()
            if scope is not None and scope.stopped:  # abandoned: the caller's cleanup has run
                part.unlink(missing_ok=True)

    try:
        worked = run_with_timeout(made, url, timeout, lambda: bytes_of(part))
        if worked:
            check_copy(part)
            commit_file(part, path)
        return worked
    except StorageError as error:
        _raise_local(error, part)
        raise
    finally:
        part.unlink(missing_ok=True)


def _raise_local(error: BaseException, part: Path) -> None:
    """Raise the OSError of the local file if a storage reports it as its own."""
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
