"""Reads parts of files, several at once; so are large ones copied."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from streamplug.errors import CorruptShardError, StorageError
from streamplug.interfaces import Storage
from streamplug.plugin_kit.cancellation import check
from streamplug.transfer.retry import call_with_retries
from streamplug.types import Buffer, FileInfo

PARALLEL_DOWNLOAD_BYTES = (64 << 20) + 1
"""Bytes of a file from which on it comes in parts; a writer's default is just below."""

PART_BYTES = 8 << 20
PARTS_IN_FLIGHT = 4
"""Parts of one file that are in memory at a time."""


def download_parts(storage: Storage, file: FileInfo, path: Path, retries: int) -> bool:
    """Copy a file to `path` in several parts at once, if it can be had so.

    Args:
        storage: Where it lies.
        file: Which, and its size.
        path: Where it goes, in a directory that exists; a failure may leave a part.
        retries: How often a failed request is tried again.

    Returns:
        Whether it can be had in parts; nothing is written if not.

    Raises:
        StorageError: If a part cannot be had.
        CorruptShardError: If it is shorter than the index says.
        OSError: If the local file cannot be written.
    """
    if not call_with_retries(lambda: storage.serves_ranges(file.basename), retries):
        return False
    with path.open("wb") as target:
        for start in range(0, file.bytes, PART_BYTES * PARTS_IN_FLIGHT):
            check()
            stop = min(start + PART_BYTES * PARTS_IN_FLIGHT, file.bytes)
            ranges = [(at, min(at + PART_BYTES, stop)) for at in range(start, stop, PART_BYTES)]
            for part in read_ranges(storage, file, ranges, retries):
                target.write(part)
    return True


class TruncatedFileError(CorruptShardError):
    """A file ends before it should.

    Attributes:
        at: The byte from which on there is nothing.
    """

    at: int = 0


def read_ranges(
    storage: Storage, file: FileInfo, ranges: Sequence[tuple[int, int]], retries: int
) -> Sequence[Buffer]:
    """Return parts of a file.

    Raises:
        StorageError: If they cannot be had.
        CutShortError: If one is not as long as it must be.
    """

    def attempt() -> Sequence[Buffer]:
        return checked(storage, file, ranges, storage.read_ranges(file.basename, ranges))

    return call_with_retries(attempt, retries)


def checked(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    parts: Sequence[Buffer | StorageError],
) -> list[Buffer]:
    """Return parts of a file that came.

    Raises:
        StorageError: That stands in place of one.
        CutShortError: If one is not as long as it must be.
    """
    found = []
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
        found.append(part)
    return found


class _Interruptible(io.FileIO):
    """A file whose reading ends when nobody waits for it any more."""

    def readinto(self, buffer: Buffer, /) -> int | None:  # type: ignore[override]  # FileIO says more
        check()
        return super().readinto(buffer)


def open_cancellable(path: Path) -> BinaryIO:
    """Open a file for reading in a way that ends when nobody waits for it any more."""
    return io.BufferedReader(_Interruptible(os.fspath(path)), 1 << 20)
