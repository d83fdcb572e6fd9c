"""Mapping of operating system errors of local files."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streamplug.errors import AccessDenied, DataError, StorageError, StreamplugError
from streamplug.plugin_kit.disk import DISK_FULL_ERRNOS, OUTPUT_REMEDIES, describe_full_disk

_LOCAL_ERRNOS = DISK_FULL_ERRNOS | {errno.EROFS, errno.EMFILE, errno.ENFILE}


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
        kind = AccessDenied if isinstance(error, PermissionError) else StorageError
        path = Path(error.filename or place)
        message = f"{path}: {error.strerror or error}"
        if error.errno is not None and error.errno in DISK_FULL_ERRNOS:
            message = describe_full_disk(path, error.errno, needed)
        raise kind(f"{message}; {_remedy(error, path)}") from error


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


def raise_local_error(error: BaseException, part: Path) -> None:
    """Raise the OSError of the local file if a storage reports it as its own."""
    if not part.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(part)) from error
    cause: BaseException | None = error
    while cause is not None:
        number = getattr(cause, "errno", None)
        if number in _LOCAL_ERRNOS:
            raise OSError(number, os.strerror(number), str(part)) from error
        cause = cause.__cause__ or cause.__context__


def _remedy(error: OSError, path: Path) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise the limit of open files (ulimit -n): connections count, too"
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
