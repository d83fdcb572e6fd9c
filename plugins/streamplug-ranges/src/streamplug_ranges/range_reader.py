"""Reads of byte ranges of shards, without downloading whole shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from streamplug.cache import read_scan_file
from streamplug.errors import CorruptShardError, StreamplugError
from streamplug.interfaces import RangesRead, Storage
from streamplug.source import ShardFiles
from streamplug.transfer import (
    NO_PATIENCE,
    PART_BYTES,
    Observer,
    Patience,
    TransferTask,
    call_with_retries,
    task_context,
)
from streamplug.types import Buffer, Bytes1D, FileInfo, Int64
from streamplug_ranges.range_read import read_many_files, read_ranges, read_version

_MAX_RANGES_PER_CALL = 32  # of one file
_MAX_RANGE_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads byte ranges of one stream's shards, uncached; `derived` is the directory of a scan's files."""

    storage: Storage
    retries: int
    observer: Observer | None = None
    derived: Path | None = None
    patience: Patience = NO_PATIENCE

    @classmethod
    def of(cls, files: ShardFiles) -> RangeReader:
        """Return a reader of the files of a stream's shards."""
        return cls(files.storage, files.retries, files.observer, files.derived, files.patience)

    def read(self, file: FileInfo, ranges: Int64) -> list[Bytes1D]:
        """Read byte ranges of a file: start and stop offsets, shape ``[n, 2]``, none empty.

        Raises:
            CorruptShardError: If a range has more than a tebibyte.
            TruncatedFileError: If the file is shorter than a range.
        """
        if (content := read_scan_file(self.derived, file)) is not None:
            data = np.frombuffer(content, np.uint8)
            return [data[start:stop] for start, stop in ranges.tolist()]

        def read(batch: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
            return read_ranges(self.storage, file, batch, self.retries, self.patience)

        return self._read_in_batches(file, ranges, read)

    def read_version(
        self, file: FileInfo, ranges: Int64, version: str
    ) -> tuple[list[Bytes1D], str]:
        """Read byte ranges of one version of a file, as `read`, and return that version.

        Args:
            file: The file.
            ranges: As for `read`.
            version: What an earlier call returned, to read more of that version; empty for any.

        Returns:
            The ranges, and the version, which is empty if the storage cannot tell it.

        Raises:
            CorruptShardError: If the file has another version now.
            TruncatedFileError: If the file is shorter than a range.
        """

        def read(batch: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
            nonlocal version
            parts, version = read_version(
                self.storage, file, batch, self.retries, self.patience, version=version
            )
            return parts or read_ranges(self.storage, file, batch, self.retries, self.patience)

        parts = self._read_in_batches(file, ranges, read)
        return parts, version

    def _read_in_batches(
        self,
        file: FileInfo,
        ranges: Int64,
        read: Callable[[Sequence[tuple[int, int]]], Sequence[Buffer]],
    ) -> list[Bytes1D]:
        requests, began = _split_ranges(file, ranges), time.monotonic()
        parts: list[Buffer] = []
        with task_context(TransferTask(self.observer, self.storage.url_of(file.basename))):
            for first in range(0, len(requests), _MAX_RANGES_PER_CALL):
                parts += read(requests[first : first + _MAX_RANGES_PER_CALL])
        self._emit(file, requests, time.monotonic() - began)
        return _join_parts(ranges, parts)

    def serves_ranges(self, file: FileInfo) -> bool:
        """Return whether a range of a file is transferred without the rest of it; may ask the server."""
        return call_with_retries(
            partial(self.storage.serves_ranges, file.basename), self.retries, patience=self.patience
        )

    @property
    def supports_read_many(self) -> bool:
        """Whether `read_many` combines its requests."""
        return self.derived is None and self.storage.supports_read_many

    def read_many(
        self, files: Sequence[tuple[FileInfo, Int64]]
    ) -> Iterator[tuple[int, Callable[[], list[Bytes1D]]]]:
        """Yield, in order of arrival, a position in `files` and a function that returns what `read` does."""
        combines = all(0 < _largest_range(ranges) <= _MAX_RANGE_BYTES for _, ranges in files)
        if len(files) < 2 or not self.supports_read_many or not combines:
            for position, (file, ranges) in enumerate(files):
                yield position, partial(self.read, file, ranges)
            return
        requests = [(file, _split_ranges(file, ranges)) for file, ranges in files]
        began = time.monotonic()
        for position, result in read_many_files(
            self.storage, requests, self.retries, self.patience, self.observer
        ):
            if isinstance(result, StreamplugError):
                yield position, partial(_fail, result)
                continue
            self._emit(*requests[position], time.monotonic() - began)
            yield position, partial(_join_parts, files[position][1], result)

    def _emit(self, file: FileInfo, requests: Sequence[tuple[int, int]], seconds: float) -> None:
        if self.observer is not None:
            size = sum(stop - start for start, stop in requests)
            url = self.storage.url_of(file.basename)
            self.observer.emit(RangesRead(url, len(requests), size, seconds))


def _split_ranges(file: FileInfo, ranges: Int64) -> list[tuple[int, int]]:
    """Split ranges of a file into requests of at most `PART_BYTES`."""
    largest = _largest_range(ranges)
    if largest > _MAX_RANGE_BYTES:
        raise CorruptShardError(
            f"{file.basename}: a range of {largest} bytes is too large to be read; the index or the header "
            "of the file is damaged"
        )
    return [
        (at, min(at + PART_BYTES, stop))
        for start, stop in ranges.tolist()
        for at in range(start, stop, PART_BYTES)
    ]


def _largest_range(ranges: Int64) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).max(initial=0))


def _join_parts(ranges: Int64, parts: Sequence[Buffer]) -> list[Bytes1D]:
    """Join the parts of each range; ranges of one part are not copied."""
    remaining = iter(parts)
    grouped = [
        [next(remaining) for _ in range(start, stop, PART_BYTES)] for start, stop in ranges.tolist()
    ]
    return [np.frombuffer(p[0] if len(p) == 1 else b"".join(p), np.uint8) for p in grouped]


def _fail(error: StreamplugError) -> list[Bytes1D]:
    raise error
