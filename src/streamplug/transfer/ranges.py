"""Byte range reads: coalescing, retries, parallel parts of large files."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamplug.errors import (
    CorruptShardError,
    ObjectReplaced,
    PluginError,
    StorageError,
    StreamplugError,
)
from streamplug.interfaces import Storage
from streamplug.plugin_kit.cancellation import check
from streamplug.transfer.disk_errors import map_storage_errors
from streamplug.transfer.observer import Observer, TransferTask, task_context
from streamplug.transfer.retry import RETRYABLE_ERRORS, call_with_retries
from streamplug.types import Buffer, FileInfo, Int64

PARALLEL_DOWNLOAD_BYTES = (64 << 20) + 1
"""Minimum size of files downloaded in parallel parts, just above the default shard size of writers."""
PART_BYTES = 8 << 20
PARTS_IN_FLIGHT = 4
_LOG = logging.getLogger("streamplug.transfer")


def download_parts(storage: Storage, file: FileInfo, path: Path, retries: int) -> None:
    """Download a file to `path` in parallel parts of one version, from a storage that serves ranges.

    The file is downloaded as a whole if the storage finds that it does not, cannot tell versions, or another
    version replaces that of the first parts.

    Raises:
        TruncatedFileError: If the file is shorter than the index says.
        OSError: If the local file cannot be written.
    """
    version = ""
    with path.open("wb") as target:
        for start in range(0, file.bytes, PART_BYTES * PARTS_IN_FLIGHT):
            check()
            if start and not storage.serves_ranges(file.basename):
                break  # each part would transfer the whole file
            stop = min(start + PART_BYTES * PARTS_IN_FLIGHT, file.bytes)
            ranges = [(at, min(at + PART_BYTES, stop)) for at in range(start, stop, PART_BYTES)]
            parts, version = _read_version(storage, file, ranges, version, retries)
            if not version:
                break
            for part in parts:
                target.write(part)
        else:
            return
    call_with_retries(lambda: storage.download(file.basename, path), retries)


def _read_version(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    version: str,
    retries: int,
) -> tuple[Sequence[Buffer], str]:
    """Read parts of a version of a file, with retries; nothing if it was replaced, or has no versions."""
    url = storage.url_of(file.basename)

    def attempt() -> tuple[Sequence[Buffer], str]:
        try:
            with map_storage_errors(url):
                parts, found = storage.read_version(file.basename, ranges, version)
        except ObjectReplaced as error:  # its parts before would be replaced as well
            _LOG.warning("%s; downloading it as a whole", error)
            return [], ""
        return (_check_sizes(storage, file, ranges, parts), found) if found else ([], "")

    return call_with_retries(attempt, retries)


class TruncatedFileError(CorruptShardError):
    """A file ends at byte `at`, before its size in the index."""

    at: int = 0


def read_ranges(
    storage: Storage, file: FileInfo, ranges: Sequence[tuple[int, int]], retries: int
) -> Sequence[Buffer]:
    """Read byte ranges of a file, with retries; `TruncatedFileError` if one is short."""

    def attempt() -> Sequence[Buffer]:
        with map_storage_errors(storage.url_of(file.basename)):
            parts = storage.read_ranges(file.basename, ranges)
        return _check_sizes(storage, file, ranges, parts)

    return call_with_retries(attempt, retries)


def parts_error(storage: Storage, key: str, requested: int, returned: int) -> PluginError:
    """Return the error for a storage that returns another number of parts than requested."""
    return PluginError(
        f"{storage.url_of(key)}: the plugin of this storage returned {returned} parts where {requested} were "
        "asked for; this is an error in its read_ranges, read_version or read_many"
    )


def _check_sizes(
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


def coalesce_ranges(ranges: Int64, gap: int) -> Int64:
    """Merge ranges that overlap or are at most `gap` bytes apart, to save requests.

    The ranges are start and stop offsets, shape ``[n, 2]``, in any order; the merged ones, shape ``[m, 2]``,
    are ascending.

    >>> coalesce_ranges(np.array([[90, 99], [0, 10], [12, 20]]), gap=4)
    array([[ 0, 20],
           [90, 99]])
    """
    if len(ranges) <= 1:
        return np.array(ranges, np.int64)
    order = np.argsort(ranges[:, 0], kind="stable")
    starts, reach = ranges[order, 0], np.maximum.accumulate(ranges[order, 1])
    first = np.ones(len(order), bool)
    first[1:] = starts[1:] - reach[:-1] > gap
    begins = np.flatnonzero(first)
    merged = np.empty((len(begins), 2), np.int64)
    merged[:, 0], merged[:-1, 1], merged[-1, 1] = starts[begins], reach[begins[1:] - 1], reach[-1]
    return merged


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


def _read_many(
    storage: Storage, requests: Sequence[tuple[str, int, int]]
) -> Sequence[Buffer | StorageError]:
    """Return the parts, or the same error for all of them."""
    try:
        with map_storage_errors(storage.url):
            return storage.read_many(requests)
    except StorageError as error:
        return [error] * len(requests)


def read_many_files(
    storage: Storage,
    files: Sequence[tuple[FileInfo, Sequence[tuple[int, int]]]],
    retries: int,
    observer: Observer | None,
) -> Iterator[tuple[int, list[Buffer] | StreamplugError]]:
    """Read byte ranges of several files, retrying only those that failed.

    Yield the position of each file and its parts, those of the first attempt before the others are retried,
    and at last the positions and errors of files that could not be read.
    """
    task = TransferTask(observer, storage.url)
    missing = list(range(len(files)))
    arrived: list[tuple[int, list[Buffer]]] = []
    errors: dict[int, StreamplugError] = {}

    def attempt() -> None:
        """Request the missing files; raise the error of one that can be retried."""
        nonlocal missing
        requests = [(files[p][0].basename, *range_) for p in missing for range_ in files[p][1]]
        results = _read_many(storage, requests)
        if len(results) != len(requests):
            raise parts_error(storage, requests[0][0], len(requests), len(results))
        parts = iter(results)
        for position in missing:
            file, ranges = files[position]
            of_file = list(islice(parts, len(ranges)))
            try:
                arrived.append((position, _check_sizes(storage, file, ranges, of_file)))
                errors.pop(position, None)
            except StreamplugError as error:
                errors[position] = error
        missing = [p for p, error in errors.items() if isinstance(error, RETRYABLE_ERRORS)]
        if missing:
            worst = max(missing, key=lambda p: getattr(errors[p], "retry_after", 0.0))
            task.url = storage.url_of(files[worst][0].basename)
            raise errors[worst]

    first_error: Exception | None = None
    try:
        attempt()
    except RETRYABLE_ERRORS as error:
        first_error = error
    yield from arrived
    if first_error is not None:
        arrived.clear()
        with suppress(*RETRYABLE_ERRORS), task_context(task):
            call_with_retries(attempt, retries, first_error)
        yield from arrived
    yield from errors.items()
