"""Reads parts of files, several at once: of large ones to copy them, of others for their samples."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, ClassVar, TypeAlias

import numpy as np

from streamplug.errors import CorruptShardError, StorageError
from streamplug.fetch.observe import Observer, ranging
from streamplug.fetch.retry import retrying
from streamplug.interfaces import Storage
from streamplug.interfaces.cancel import check
from streamplug.types import Buffer, Bytes1D, FileInfo, Int64

LARGE = (64 << 20) + 1
"""Bytes of a file from which on it comes in parts; a writer's default is just below."""

PART = 8 << 20
AT_ONCE = 4
"""Parts of one file that are in memory at a time."""

_REQUESTS = 32
"""Ranges of one file that are asked for at once."""

Came: TypeAlias = "Sequence[Buffer | StorageError]"
"""Parts of a file, or errors in place of those that could not be had."""

Wanted: TypeAlias = "tuple[FileInfo, Int64]"
"""A file, and which parts of it."""


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
    if not retrying(lambda: storage.serves_ranges(file.basename), retries):
        return False
    with path.open("wb") as target:
        for start in range(0, file.bytes, PART * AT_ONCE):
            check()
            stop = min(start + PART * AT_ONCE, file.bytes)
            ranges = [(at, min(at + PART, stop)) for at in range(start, stop, PART)]
            for part in read_ranges(storage, file, ranges, retries):
                target.write(part)
    return True


class CutShortError(CorruptShardError):
    """A file ends before it should.

    Attributes:
        at: The byte from which on there is nothing.
    """

    at: int = 0


def read_ranges(
    storage: Storage,
    file: FileInfo,
    ranges: list[tuple[int, int]],
    retries: int,
    came: Came | None = None,
) -> Sequence[Buffer]:
    """Return parts of a file.

    Args:
        storage: Where it lies.
        file: Which.
        ranges: Of the parts.
        retries: How often to try again.
        came: What the first attempt gave, if it has been made.

    Raises:
        StorageError: If they cannot be had.
        CutShortError: If one is not as long as it must be.
    """
    made = [] if came is None else [came]

    def attempt() -> Sequence[Buffer]:
        parts = made.pop() if made else storage.read_ranges(file.basename, ranges)
        return [_checked(storage, file, *each) for each in zip(ranges, parts)]

    return retrying(attempt, retries)


def _checked(
    storage: Storage, file: FileInfo, limits: tuple[int, int], part: Buffer | StorageError
) -> Buffer:
    if isinstance(part, StorageError):
        raise part
    start, stop = limits
    if len(part) != stop - start:
        error = CutShortError(
            f"{storage.url_of(file.basename)}: got {len(part)} bytes from {start} on where "
            f"{stop - start} were asked for, and the index says it has {file.bytes}; it was cut short "
            "or replaced, write or copy it again"
        )
        error.at = start + len(part)
        raise error
    return part


@dataclass(frozen=True, slots=True)
class RangeStore:
    """Parts of the shards of one stream, of which none are kept.

    Attributes:
        storage: Where they lie.
        retries: How often a failed request is tried again.
        observer: Whom to tell what happens.
        derived: The directory of files that were made from others, if there are any.
    """

    storage: Storage
    retries: int
    observer: Observer | None = None
    derived: Path | None = None
    fetches: ClassVar[bool] = True

    def read(self, file: FileInfo, ranges: Int64) -> list[Bytes1D]:
        """Return parts of a file.

        Args:
            file: Which.
            ranges: Where each begins and ends, shape ``[n, 2]``; none is empty.

        Raises:
            StorageError: If they cannot be had.
            CutShortError: If one is not as long as it must be.
        """
        if self.derived is not None and (made := self.derived / file.basename).exists():
            data = np.fromfile(made, np.uint8)
            return [data[start:stop] for start, stop in ranges.tolist()]
        split = [_requests(start, stop) for start, stop in ranges.tolist()]
        return self._read(file, split, time.monotonic())

    @property
    def joins(self) -> bool:
        """Whether `read_many` asks for all at once."""
        return self.derived is None and self.storage.joins

    def read_many(self, wanted: Sequence[Wanted]) -> Iterator[Callable[[], list[Bytes1D]]]:
        """Ask for parts of several files.

        Args:
            wanted: The files and the parts, as for `read`.

        Yields:
            For each file what returns its parts, or raises what `read` does.
        """
        if len(wanted) < 2 or not self.joins:
            yield from (partial(self.read, *each) for each in wanted)
            return
        began = time.monotonic()
        splits = [
            [_requests(start, stop) for start, stop in ranges.tolist()] for _, ranges in wanted
        ]
        requests = [
            (file.basename, *request)
            for (file, _), split in zip(wanted, splits)
            for each in split
            for request in each
        ]
        try:
            parts = iter(self.storage.read_parts(requests))
        except StorageError as error:  # nothing came of any
            parts = iter([error] * len(requests))
        for (file, _), split in zip(wanted, splits):
            came = [next(parts) for each in split for _ in each]
            yield partial(self._read, file, split, began, came)

    def _read(
        self,
        file: FileInfo,
        split: list[list[tuple[int, int]]],
        began: float,
        came: Came | None = None,
    ) -> list[Bytes1D]:
        requests = [request for each in split for request in each]
        parts: list[Buffer] = []
        with ranging(self.observer, self.storage.url_of(file.basename), requests, began):
            for first in range(0, len(requests), _REQUESTS):
                some = slice(first, first + _REQUESTS)
                there = None if came is None else came[some]
                parts += read_ranges(self.storage, file, requests[some], self.retries, there)
        # As they came, without copying, but for those that came in several requests.
        found = iter(parts)
        pieces = [[next(found) for _ in each] for each in split]
        return [np.frombuffer(p[0] if len(p) == 1 else b"".join(p), np.uint8) for p in pieces]


def _requests(start: int, stop: int) -> list[tuple[int, int]]:
    return [(at, min(at + PART, stop)) for at in range(start, stop, PART)]


class _Interruptible(io.FileIO):
    """A file whose reading ends when nobody waits for it any more."""

    def readinto(self, buffer: Buffer, /) -> int | None:  # type: ignore[override]  # FileIO says more
        check()
        return super().readinto(buffer)


def open_interruptible(path: Path) -> BinaryIO:
    """Open a file for reading in a way that ends when nobody waits for it any more."""
    return io.BufferedReader(_Interruptible(os.fspath(path)), 1 << 20)
