"""Errors of ours for those of local files: of the cache, of a writer's output, and beside a storage's."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamplug.errors import (
    AccessDenied,
    DataError,
    StorageError,
    StreamplugError,
    add_note,
)
from streamplug.plugin_kit import (
    DISK_FULL_ERRNOS,
    OUTPUT_REMEDIES,
    causes_of,
    describe_full_disk,
    is_full_disk,
    retryable_cause,
    storage_error,
)

_LOCAL_ERRNOS = DISK_FULL_ERRNOS | {errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE}


@contextmanager
def map_disk_errors(place: Path, needed: int | None = None) -> Iterator[None]:
    """Map operating system errors of cache files to streamplug errors.

    `place` is the path in errors that name none; `needed` is the number of bytes to be written, if known.
    """
    try:
        yield
    except StreamplugError:
        raise
    except OSError as error:
        raise _disk_error(error, place, needed) from error


def _disk_error(error: OSError, place: Path, needed: int | None) -> StorageError:
    kind = AccessDenied if isinstance(error, PermissionError) else StorageError
    path = Path(error.filename or place)
    message = f"{path}: {error.strerror or error}"
    if error.errno is not None and is_full_disk(error):
        message = describe_full_disk(path, error.errno, needed)
    mapped = kind(f"{message}; {_remedy(error, path)}")
    mapped.errno = error.errno
    return mapped


@contextmanager
def map_output_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Map operating system errors of a data set's output file or directory to streamplug errors.

    Errors name `path`; `needed` is the number of bytes to be written, if known.
    """
    try:
        yield
    except StreamplugError:
        raise
    except OSError as error:
        kind, number = StorageError, error.errno or 0
        message = f"{path}: {error.strerror or error}"
        remedy = OUTPUT_REMEDIES.get(number, "write to another directory")
        if number in DISK_FULL_ERRNOS:
            message = describe_full_disk(path, number, needed)
        elif isinstance(error, PermissionError):
            kind, remedy = AccessDenied, "write to a directory that you may write to"
        raise kind(f"{message}; {remedy}; the write is unfinished: no index was written") from error


@contextmanager
def map_storage_errors(url: str, local: Path | None = None) -> Iterator[None]:
    """Map what a storage lets through to storage errors, and errors of the local file to `OSError`.

    Plugins may raise what their client raised. An error is of the local file if it names it, or has an error
    number that only disks have.

    Args:
        url: URL of the object, without credentials.
        local: Local file that the storage reads or writes, if any.
    """
    try:
        yield
    except Exception as error:
        if local is not None:
            raise_local_error(error, local)
        if isinstance(error, StreamplugError):
            raise
        if not (isinstance(error, OSError) or retryable_cause(error)):
            add_note(error, f"raised by the storage of {url}")
            raise
        # `from None`: the client's text may contain signed URLs or keys.
        raise storage_error(error, url) from None


def raise_local_error(error: BaseException, local: Path) -> None:
    """Raise an `OSError` of a local file if an error is of that; see `map_storage_errors`."""
    if not local.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(local)) from error
    for cause in causes_of(error, contexts=True):
        number = getattr(cause, "errno", None)
        if number in _LOCAL_ERRNOS or (number and _names(cause, local)):
            raise OSError(number, os.strerror(number), str(local)) from error


def _names(error: BaseException, local: Path) -> bool:
    """Return whether an OSError names a file, a client's partial file of it, or its directory."""
    name = getattr(error, "filename", None)
    if not isinstance(name, (str, os.PathLike)):
        return False
    path = os.fspath(name)
    return path == str(local.parent) or path.startswith(str(local))


def _remedy(error: OSError, path: Path) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n): connections count, too"
    if error.errno == errno.EFBIG:
        return "raise the limit of the file size (ulimit -f), which is less than a shard"
    if os.access(path, os.F_OK) and path.is_file() and not os.access(path, os.R_OK):
        return "check the owner and mode of the file and of its directories"
    if error.errno == errno.ENOMEM:
        return "raise the limit of address space (ulimit -v) or of memory maps (vm.max_map_count)"
    temporary = None
    with suppress(FileNotFoundError):  # none can be written to
        temporary = Path(tempfile.gettempdir())
    if temporary is not None and path.is_relative_to(temporary):
        inner = path.relative_to(temporary).parts
        if inner and inner[0].startswith("streamplug-"):
            is_cache = len(inner) > 1 and inner[1] == "kept"
            return (
                "it is among temporary files: set TMPDIR to a directory on a disk with more room that can be "
                "written to" + is_cache * ", or STREAMPLUG_CACHE_DIR or local= for the cache"
            )
        if not inner:
            return "set TMPDIR to a directory on a disk with more room that can be written to"
    return (
        "streamplug needs local= to be a directory that it can write to, with room for the shards, or for "
        "those that cache_limit= lets it keep; without local=, set STREAMPLUG_CACHE_DIR to such a directory"
    )


@contextmanager
def prefix_shard_errors(shard: int) -> Iterator[None]:
    """Prefix the messages of errors with the shard number."""
    try:
        yield
    except (DataError, StorageError) as error:
        error.args = (f"shard {shard}: {error}",)
        raise
