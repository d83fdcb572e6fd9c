"""Reads of byte ranges of one file, or of several at once, with retries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from streamplug.errors import CorruptShardError, ObjectReplaced, StorageError, StreamplugError
from streamplug.interfaces import Storage
from streamplug.transfer import (
    RETRYABLE_ERRORS,
    Observer,
    Patience,
    TransferTask,
    call_with_retries,
    check_parts,
    map_storage_errors,
    parts_error,
    task_context,
)
from streamplug.types import Buffer, FileInfo


def read_ranges(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    retries: int,
    patience: Patience,
) -> Sequence[Buffer]:
    """Read byte ranges of a file, with retries; `TruncatedFileError` if one is short."""

    def attempt() -> Sequence[Buffer]:
        with map_storage_errors(storage.url_of(file.basename)):
            parts = storage.read_ranges(file.basename, ranges)
        return check_parts(storage, file, ranges, parts)

    return call_with_retries(attempt, retries, patience=patience)


def read_version(
    storage: Storage,
    file: FileInfo,
    ranges: Sequence[tuple[int, int]],
    retries: int,
    patience: Patience,
    *,
    version: str,
) -> tuple[Sequence[Buffer], str]:
    """Read byte ranges of one version of a file, with retries; see `Storage.read_version`.

    Raises:
        CorruptShardError: If the file was replaced; `TruncatedFileError` if a range is short.
    """
    url = storage.url_of(file.basename)

    def attempt() -> tuple[Sequence[Buffer], str] | None:
        try:
            with map_storage_errors(url):
                parts, found = storage.read_version(file.basename, ranges, version)
        except ObjectReplaced:
            if version:  # what was read before would still be of another one
                return None
            raise
        return (check_parts(storage, file, ranges, parts), found) if found else ([], "")

    result = call_with_retries(attempt, retries, patience=patience)
    if result is None:
        raise CorruptShardError(
            f"{url}: it was replaced after its header was read, and has another version now; open the data "
            "set again"
        )
    return result


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
    patience: Patience,
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
                arrived.append((position, check_parts(storage, file, ranges, of_file)))
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
            call_with_retries(attempt, retries, first_error, patience=patience)
        yield from arrived
    yield from errors.items()
