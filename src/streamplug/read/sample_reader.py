"""What a reader of samples offers to a run (a protocol), and readers of the samples of another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from streamplug.plan import StreamSelections
from streamplug.read.stream_shards import Need
from streamplug.transfer import PrefetchLimits
from streamplug.types import ColumnValues, Int64, Sample


class SampleReader(Protocol):
    """Random access to samples by id; the methods are described in `Reader`."""

    starts: Int64  # first sample id of each shard over all streams, and the total
    stream_shards: list[int]  # first shard of each stream, and the total
    prefetch_limits: PrefetchLimits  # limits of the prefetch window, without those of the cache
    decodes_lazily: bool  # whether `batches` decodes each batch on demand, rather than all at once
    cache_limit: int | None  # smallest cache limit of the streams in bytes; None if there is none

    def needs(self, ids: Int64) -> list[Need]:
        """Return what must be fetched to read some samples."""

    def weight(self, need: Need) -> int:
        """Return the approximate bytes of a need."""

    def ensure(self, need: Need) -> None:
        """Fetch a need."""

    def claim(self, need: Need) -> None:
        """Keep a need open until it is released."""

    def release(self, need: Need) -> None:
        """Release a claimed need."""

    def file_of(self, need: Need) -> tuple[int, str]:
        """Return the number of a need's first shard, and the name of that shard's first file."""

    def remember_failures(self) -> None:
        """Raise the error of a shard that cannot be opened again without another attempt, from now on."""

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return the location of a sample."""

    def describe(self, sample_id: int) -> str:
        """Return what errors call a sample."""

    def row(self, sample_id: int) -> Sample:
        """Return one sample."""

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples."""

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column."""

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of samples."""


class WrappedReader:
    """Base class of readers of the same streams, and with the same needs, as another reader.

    Subclasses define the other methods and attributes of `SampleReader`.
    """

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader
        self.stream_shards = reader.stream_shards
        self.prefetch_limits = reader.prefetch_limits
        self.decodes_lazily = reader.decodes_lazily
        self.cache_limit = reader.cache_limit
        self.weight, self.ensure, self.file_of = reader.weight, reader.ensure, reader.file_of
        self.claim, self.release = reader.claim, reader.release
        self.remember_failures = reader.remember_failures


class SelectedReader(WrappedReader):
    """Reader of selected rows, whose ids are consecutive; the attributes are those of `SampleReader`.

    Its shards are those of `reader` with fewer rows, or none.
    """

    def __init__(self, reader: SampleReader, selections: StreamSelections) -> None:
        """Read rows of `reader`."""
        super().__init__(reader)
        self._selections = selections
        self.starts = selections.starts(np.asarray(reader.starts), reader.stream_shards)

    def needs(self, ids: Int64) -> list[Need]:
        return self._reader.needs(self._selections.rows(ids))

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        return self._reader.locate(self._selections.row(sample_id))

    def describe(self, sample_id: int) -> str:
        return self._reader.describe(self._selections.row(sample_id))

    def row(self, sample_id: int) -> Sample:
        return self._reader.row(self._selections.row(sample_id))

    def rows(self, ids: Int64) -> list[Sample]:
        return self._reader.rows(self._selections.rows(ids))

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        return self._reader.batch(self._selections.rows(ids))

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        return self._reader.batches(self._selections.rows(ids), parts)
