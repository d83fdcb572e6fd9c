"""Byte range reads: coalescing, retries, parallel parts of large files."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from streamplug.errors import CorruptShardError, StorageError, StreamplugError
from streamplug.interfaces import Storage
from streamplug.plugin_kit.cancellation import check
from streamplug.transfer.observer import Observer, TransferTask, task_context
from streamplug.transfer.retry import RETRYABLE_ERRORS, call_with_retries
from streamplug.types import Buffer, FileInfo, Int64

PARALLEL_DOWNLOAD_BYTES = (64 << 20) + 1
"""Minimum size of files downloaded in parallel parts, just above the default shard size of writers."""
PART_BYTES = 8 << 20
PARTS_IN_FLIGHT = 4


def download_parts(storage: Storage, file: FileInfo, path: Path, retries: int) -> bool:
    """Download a file to `path` in parallel parts; return False if the storage does not serve ranges.

    Raises:
        TruncatedFileError: If the file is shorter than the index says.
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
    """A file ends at byte `at`, before its size in the index."""

    at: int = 0


def read_ranges(
    storage: Storage, file: FileInfo, ranges: Sequence[tuple[int, int]], retries: int
) -> Sequence[Buffer]:
    """Read byte ranges of a file, with retries; `TruncatedFileError` if one is short."""

    def attempt() -> Sequence[Buffer]:
        return checked(storage, file, ranges, storage.read_ranges(file.basename, ranges))

    return call_with_retries(attempt, retries)


def checked(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    parts: Sequence[Buffer | StorageError],
) -> list[Buffer]:
    """Return the parts of a file after checking their lengths; raise an error among them."""
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
    """A file whose reads raise when the job is cancelled."""

    def readinto(self, buffer: Buffer, /) -> int | None:  # type: ignore[override]  # FileIO says more
        check()
        return super().readinto(buffer)


def open_cancellable(path: Path) -> BinaryIO:
    """Open a file for reading, cancellable at every read."""
    return io.BufferedReader(_Interruptible(os.fspath(path)), 1 << 20)


def coalesce_ranges(ranges: Int64, gap: int) -> Int64:
    """Merge ranges that overlap or are at most `gap` bytes apart, to save requests.

    The ranges are start and stop offsets, shape ``[n, 2]``, in any order; the merged ones, shape ``[m, 2]``,
    are ascending.

    >>> coalesce_ranges(np.array([[90, 99], [0, 10], [12, 20]]), gap=4)
    array([[ 0, 20],
           [90, 99]])
    """
    if len(ranges) == 1:
        return np.array(ranges, np.int64)
    order = np.argsort(ranges[:, 0], kind="stable")
    starts, reach = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
    first = np.ones(len(order), bool)
    first[1:] = starts[1:] - reach[:-1] > gap
    begins = np.flatnonzero(first)
    found = np.empty((len(begins), 2), np.int64)
    found[:, 0], found[:-1, 1], found[-1, 1] = starts[begins], reach[begins[1:] - 1], reach[-1]
    return found


def locate_ranges(ranges: Int64, spans: Int64) -> tuple[Int64, Int64]:
    """Return the span that contains each range, -1 for none, and the offset in it, both of shape ``[n]``.

    The ranges are start and stop offsets, shape ``[n, 2]``; so are the spans, ``[m, 2]``, ascending and
    disjoint.

    >>> locate_ranges(np.array([[92, 95], [5, 12], [3, 5]]), np.array([[0, 10], [90, 99]]))
    (array([ 1, -1,  0]), array([2, 5, 3]))
    """
    if len(ranges) == len(spans) == 1:  # common: few samples of many shards
        (start, stop), (low, high) = ranges.tolist()[0], spans.tolist()[0]
        return np.array([0 if low <= start and stop <= high else -1]), np.array([start - low])
    if not len(spans):
        return np.full(len(ranges), -1, np.int64), np.zeros(len(ranges), np.int64)
    part = np.maximum(np.searchsorted(spans[:, 0], ranges[:, 0], side="right") - 1, 0)
    inside = (ranges[:, 0] >= spans[part, 0]) & (ranges[:, 1] <= spans[part, 1])
    return np.where(inside, part, -1), ranges[:, 0] - spans[part, 0]


Wanted: TypeAlias = "Sequence[tuple[FileInfo, Sequence[tuple[int, int]]]]"


class ManyFilesRead:
    """Reads byte ranges of several files; `errors` has the errors of missing files by position."""

    def __init__(
        self, storage: Storage, wanted: Wanted, retries: int, observer: Observer | None
    ) -> None:
        self._storage, self._wanted, self._retries = storage, wanted, retries
        self._task = TransferTask(observer, storage.url)
        self._missing = list(range(len(wanted)))
        self._came: dict[int, list[Buffer]] = {}
        self.errors: dict[int, StreamplugError] = {}

    def come(self) -> Iterator[tuple[int, list[Buffer]]]:
        """Yield the position of each file and its parts as they arrive; `errors` is final at the end."""
        failed: list[Exception] = []
        try:
            self._ask()
        except RETRYABLE_ERRORS as error:
            failed.append(error)
        yield from self._given()
        if failed:
            with suppress(*RETRYABLE_ERRORS), task_context(self._task):
                call_with_retries(partial(self._again, failed), self._retries)
            yield from self._given()

    def _given(self) -> Iterator[tuple[int, list[Buffer]]]:
        given, self._came = self._came, {}
        return iter(given.items())

    def _again(self, failed: list[Exception]) -> None:
        if failed:
            raise failed.pop()  # counts as the first attempt
        self._ask()

    def _ask(self) -> None:
        """Request the missing files; raise the error of one that can be retried."""
        files = [self._wanted[place] for place in self._missing]
        requests = [(file.basename, *each) for file, ranges in files for each in ranges]
        try:
            came = iter(self._storage.read_many(requests))
        except StorageError as error:
            came = iter([error] * len(requests))
        for place, (file, ranges) in zip(self._missing, files):
            parts = [next(came) for _ in ranges]
            try:
                self._came[place] = checked(self._storage, file, ranges, parts)
                self.errors.pop(place, None)
            except StreamplugError as error:
                self.errors[place] = error
        self._missing = [
            p for p, error in self.errors.items() if isinstance(error, RETRYABLE_ERRORS)
        ]
        if self._missing:
            worst = max(self._missing, key=lambda p: getattr(self.errors[p], "retry_after", 0.0))
            self._task.url = self._storage.url_of(self._wanted[worst][0].basename)
            raise self.errors[worst]
