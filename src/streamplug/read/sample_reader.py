"""Samples: what a data set reads by id, be it what is stored or what is made of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from streamplug.read.sample_range import FetchGroup
from streamplug.types import ColumnValues, Int64, Sample


class SampleReader(Protocol):
    """Samples by id; the methods are those of `Reader`, where they are described.

    Attributes:
        starts: First sample id of each shard over all streams, and the total.
        stream_shards: First shard of each stream, and the total.
        reads_ranges: Whether all streams are read by ranges.
        decodes_lazily: Whether `batches` decodes one when it is asked for, rather than all.
        cache_limit: Bytes that the smallest limit of a cache allows; None if there is no limit.
    """

    starts: Int64
    stream_shards: list[int]
    reads_ranges: bool
    decodes_lazily: bool
    cache_limit: int | None

    def needs(self, ids: Int64) -> list[int | FetchGroup]:
        """Return what must be there to read some samples."""

    def weight(self, need: int | FetchGroup) -> int:
        """Return about how many bytes a need has."""

    def ensure(self, need: int | FetchGroup) -> None:
        """Fetch what is needed."""

    def claim(self, need: int | FetchGroup) -> None:
        """Have it stay."""

    def release(self, need: int | FetchGroup) -> None:
        """Have it stay no longer."""

    def file_of(self, need: int | FetchGroup) -> tuple[int, str]:
        """Return which shard a need is of, and the name of its first file."""

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return where a sample lies."""

    def row(self, sample_id: int) -> Sample:
        """Return one sample."""

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples."""

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column."""

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of samples, some of the ids each."""
