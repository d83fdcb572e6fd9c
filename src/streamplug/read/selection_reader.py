"""Random access to the selected rows of streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from streamplug.plan import StreamSelections
from streamplug.read.sample_reader import SampleReader
from streamplug.read.stream_shards import Need
from streamplug.types import ColumnValues, Int64, Sample


class SelectedReader:
    """Reader of selected rows, whose ids are consecutive; the attributes are those of `SampleReader`.

    Its shards are those of `reader` with fewer rows, or none.
    """

    def __init__(self, reader: SampleReader, selections: StreamSelections) -> None:
        """Read rows of `reader`."""
        self._reader, self._selections = reader, selections
        self.starts = selections.starts(np.asarray(reader.starts), reader.stream_shards)
        self.stream_shards = reader.stream_shards
        self.prefetch_limits = reader.prefetch_limits
        self.decodes_lazily = reader.decodes_lazily
        self.cache_limit = reader.cache_limit
        # Needs are the same in both readers.
        self.weight, self.ensure, self.file_of = reader.weight, reader.ensure, reader.file_of
        self.claim, self.release = reader.claim, reader.release
        self.remember_failures = reader.remember_failures

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
