"""Byte ranges of shards, for samples that are read without whole shards."""

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

_REQUESTS = 32
"""Ranges of one file that are asked for at once."""


@dataclass(frozen=True, slots=True)
class RangeReader:
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
        requests = _requests(ranges)
        parts: list[Buffer] = []
        with track_ranges(self.observer, self.storage.url_of(file.basename), requests):
            for first in range(0, len(requests), _REQUESTS):
                some = requests[first : first + _REQUESTS]
                parts += read_ranges(self.storage, file, some, self.retries)
        return _whole(ranges, parts)

    @property
    def supports_read_many(self) -> bool:
        """Whether `read_many` asks for all at once."""
        return self.derived is None and self.storage.supports_read_many

    def read_many(
        self, wanted: Sequence[tuple[FileInfo, Int64]]
    ) -> Iterator[tuple[int, Callable[[], list[Bytes1D]]]]:
        """Ask for parts of several files.

        Args:
            wanted: The files and the parts, as for `read`.

        Yields:
            As they come, the place of a file among `wanted`, and what returns its parts, or raises what
            `read` does.
        """
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
    """Return what is asked for of a file: large parts come in several."""
    return [
        (at, min(at + PART_BYTES, stop))
        for start, stop in ranges.tolist()
        for at in range(start, stop, PART_BYTES)
    ]


def _whole(ranges: Int64, parts: Sequence[Buffer]) -> list[Bytes1D]:
    """Return parts as they came, without copying, but for those that came in several."""
    found = iter(parts)
    pieces = [
        [next(found) for _ in range(start, stop, PART_BYTES)] for start, stop in ranges.tolist()
    ]
    return [np.frombuffer(p[0] if len(p) == 1 else b"".join(p), np.uint8) for p in pieces]


def _fail(error: StreamplugError) -> list[Bytes1D]:
    raise error
