"""Reads of byte ranges of shards, without downloading whole shards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from streamplug.errors import StreamplugError
from streamplug.interfaces import Storage
from streamplug.interfaces.callback import RangesRead
from streamplug.transfer.observer import Observer, track_ranges
from streamplug.transfer.ranges import PART_BYTES, ManyFilesRead, read_ranges
from streamplug.types import Buffer, Bytes1D, FileInfo, Int64

_REQUESTS = 32  # ranges of one file per call


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads byte ranges of one stream's shards, uncached; `derived` is the directory of a scan's files."""

    storage: Storage
    retries: int
    observer: Observer | None = None
    derived: Path | None = None
    fetches: ClassVar[bool] = True

    def read(self, file: FileInfo, ranges: Int64) -> list[Bytes1D]:
        """Read byte ranges of a file: start and stop offsets, shape ``[n, 2]``, none empty.

        Raises:
            TruncatedFileError: If the file is shorter than a range.
        """
        if self.derived is not None and (made := self.derived / file.basename).exists():
            data = np.fromfile(made, np.uint8)
            return [data[start:stop] for start, stop in ranges.tolist()]
        requests = _requests(ranges)
        parts: list[Buffer] = []
        with track_ranges(self.observer, self.storage.url_of(file.basename), requests):
            for first in range(0, len(requests), _REQUESTS):
                some = requests[first : first + _REQUESTS]
                parts += read_ranges(self.storage, file, some, self.retries)
        return _whole(ranges, parts)

    @property
    def supports_read_many(self) -> bool:
        """Whether `read_many` combines its requests."""
        return self.derived is None and self.storage.supports_read_many

    def read_many(
        self, wanted: Sequence[tuple[FileInfo, Int64]]
    ) -> Iterator[tuple[int, Callable[[], list[Bytes1D]]]]:
        """Yield, in order of arrival, a position in `wanted` and a function that returns what `read` does."""
        if (
            len(wanted) < 2
            or not self.supports_read_many
            or not all(len(ranges) for _, ranges in wanted)
        ):
            for place, each in enumerate(wanted):
                yield place, partial(self.read, *each)
            return
        files = [(file, _requests(ranges)) for file, ranges in wanted]
        joint, began = (
            ManyFilesRead(self.storage, files, self.retries, self.observer),
            time.monotonic(),
        )
        for place, parts in joint.come():
            self._tell(*files[place], time.monotonic() - began)
            yield place, partial(_whole, wanted[place][1], parts)
        for place, error in joint.errors.items():
            yield place, partial(_fail, error)

    def _tell(self, file: FileInfo, requests: Sequence[tuple[int, int]], seconds: float) -> None:
        if self.observer is not None:
            size = sum(stop - start for start, stop in requests)
            url = self.storage.url_of(file.basename)
            self.observer.emit(RangesRead(url, len(requests), size, seconds))


def _requests(ranges: Int64) -> list[tuple[int, int]]:
    """Split ranges into requests of at most `PART_BYTES`."""
    return [
        (at, min(at + PART_BYTES, stop))
        for start, stop in ranges.tolist()
        for at in range(start, stop, PART_BYTES)
    ]


def _whole(ranges: Int64, parts: Sequence[Buffer]) -> list[Bytes1D]:
    """Join the parts of each range; ranges of one part are not copied."""
    found = iter(parts)
    pieces = [
        [next(found) for _ in range(start, stop, PART_BYTES)] for start, stop in ranges.tolist()
    ]
    return [np.frombuffer(p[0] if len(p) == 1 else b"".join(p), np.uint8) for p in pieces]


def _fail(error: StreamplugError) -> list[Bytes1D]:
    raise error
