"""Byte ranges of a file: files made of parallel ranges, and checks of what a storage returns for them."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from streamplug.errors import (
    CorruptShardError,
    ObjectReplaced,
    PluginError,
    StorageError,
)
from streamplug.interfaces import Storage
from streamplug.plugin_kit import check
from streamplug.transfer.disk_errors import map_storage_errors
from streamplug.types import Buffer, FileInfo

PARALLEL_DOWNLOAD_BYTES = (64 << 20) + 1
"""Minimum size of files downloaded in parallel parts, just above the default shard size of writers."""
PART_BYTES = 8 << 20
PARTS_IN_FLIGHT = 4
_LOG = logging.getLogger("streamplug.transfer")


Parts = tuple[Sequence[Buffer], str]
"""Parts of a file, and the version that they are of."""

NO_PARTS: Parts = [], ""
"""The file is to be downloaded as a whole."""


def download_parts(
    storage: Storage, file: FileInfo, path: Path, request: Callable[[Callable[[], Parts]], Parts]
) -> bool:
    """Download a file to `path` in parallel parts of one version; False if it must be downloaded as a whole.

    That is so if the storage does not serve ranges, or cannot tell versions, if another version replaces that
    of the first parts, or if `request` returns `NO_PARTS`.

    Args:
        storage: The storage of the file.
        file: The file.
        path: Local file to write.
        request: Calls a function that reads some of the parts, and returns them; retries it if it fails.

    Raises:
        TruncatedFileError: If the file is shorter than the index says.
        OSError: If the local file cannot be written.
    """
    version = ""
    with path.open("wb") as target:
        for start in range(0, file.bytes, PART_BYTES * PARTS_IN_FLIGHT):
            stop = min(start + PART_BYTES * PARTS_IN_FLIGHT, file.bytes)
            ranges = [(at, min(at + PART_BYTES, stop)) for at in range(start, stop, PART_BYTES)]
            parts, version = request(partial(_read_version, storage, file, ranges, version))
            if not version:
                return False
            for part in parts:
                target.write(part)
    return True


def _read_version(
    storage: Storage, file: FileInfo, ranges: Sequence[tuple[int, int]], version: str
) -> Parts:
    """Read parts of a version of a file; `NO_PARTS` if it was replaced, or has no versions."""
    url = storage.url_of(file.basename)
    try:
        with map_storage_errors(url):
            if not storage.serves_ranges(file.basename):
                return NO_PARTS  # each part would transfer the whole file
            parts, found = storage.read_version(file.basename, ranges, version)
    except ObjectReplaced as error:  # its parts before would be replaced as well
        _LOG.warning("%s; downloading it as a whole", error)
        return NO_PARTS
    return (check_parts(storage, file, ranges, parts), found) if found else NO_PARTS


class TruncatedFileError(CorruptShardError):
    """A file ends at byte `at`, before its size in the index."""

    at: int = 0


def parts_error(storage: Storage, key: str, requested: int, returned: int) -> PluginError:
    """Return the error for a storage that returns another number of parts than requested."""
    return PluginError(
        f"{storage.url_of(key)}: the plugin of this storage returned {returned} parts where {requested} were "
        "asked for; this is an error in its read_ranges, read_version or read_many"
    )


def check_parts(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    parts: Sequence[Buffer | StorageError],
) -> list[Buffer]:
    """Return the parts of a file after checking their lengths; raise an error among them."""
    if len(parts) != len(ranges):
        raise parts_error(storage, file.basename, len(ranges), len(parts))
    checked = []
    for (start, stop), part in zip(ranges, parts):
        if isinstance(part, StorageError):
            raise part
        if len(part) != stop - start:
            error = TruncatedFileError(
                f"{storage.url_of(file.basename)}: got {len(part)} bytes from {start} on where "
                f"{stop - start} were asked for, and the index says it has {file.bytes}; it was cut short "
                "or replaced, write or copy it again"
            )
            error.at = start + len(part)
            raise error
        checked.append(part)
    return checked


class _Interruptible(io.FileIO):
    """A file whose reads raise when the job is cancelled."""

    def readinto(self, buffer: Buffer, /) -> int | None:  # type: ignore[override]  # FileIO says more
        check()
        return super().readinto(buffer)


def open_cancellable(path: Path) -> BinaryIO:
    """Open a file for reading, cancellable at every read."""
    return io.BufferedReader(_Interruptible(os.fspath(path)), 1 << 20)
