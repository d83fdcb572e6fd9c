"""Readers that join columns of several data sets, and that concatenate others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from streamplug.errors import DataError
from streamplug.read import Need, SampleReader
from streamplug.transfer import PrefetchLimits
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_views.row_map import MISSING, RowMapping


@dataclass(frozen=True, slots=True)
class PartNeed:
    """A need of one of several readers."""

    part: int
    need: Need


class CombinedReader:
    """Base class of readers over others, whose needs are those of the others."""

    def __init__(self, readers: Sequence[SampleReader]) -> None:
        self._readers = list(readers)
        self.prefetch_limits = PrefetchLimits.common(reader.prefetch_limits for reader in readers)
        self.decodes_lazily = all(reader.decodes_lazily for reader in readers)
        limits = [reader.cache_limit for reader in readers if reader.cache_limit is not None]
        self.cache_limit = min(limits, default=None)

    def weight(self, need: Any) -> int:
        """Return the approximate bytes of a need."""
        weight: int = self._readers[need.part].weight(need.need)
        return weight

    def ensure(self, need: Any) -> None:
        """Fetch a need."""
        self._readers[need.part].ensure(need.need)

    def claim(self, need: Any) -> None:
        """Keep a need open until it is released."""
        self._readers[need.part].claim(need.need)

    def release(self, need: Any) -> None:
        """Release a claimed need."""
        self._readers[need.part].release(need.need)

    def file_of(self, need: Any) -> tuple[int, str]:
        """Return the number of a need's first shard, and the name of that shard's first file."""
        file: tuple[int, str] = self._readers[need.part].file_of(need.need)
        return file

    def remember_failures(self) -> None:
        """Raise the error of a shard that cannot be opened again without another attempt, from now on."""
        for reader in self._readers:
            reader.remember_failures()

    def _needs_of(self, part: int, ids: Int64) -> list[Any]:
        return [PartNeed(part, need) for need in self._readers[part].needs(ids)]


@dataclass(frozen=True, slots=True)
class ColumnGroup:
    """Columns of one data set in a view.

    Attributes:
        reader: Reader of these columns.
        rows: Row of the data set by position in the view.
        names: Name in the view of each column, by its name in the data set.
        renames: Whether any of them differ.
    """

    reader: SampleReader
    rows: RowMapping
    names: Mapping[str, str]
    renames: bool


class JoinedReader(CombinedReader):
    """Reader of columns of several data sets, joined by position; the attributes are as in `SampleReader`."""

    def __init__(self, groups: Sequence[ColumnGroup], main: ColumnGroup, starts: Int64) -> None:
        """Join columns.

        Args:
            groups: The columns to read.
            main: The group whose shards are those of the view; it need not be read.
            starts: First position in each shard of `main`, and the number of positions.
        """
        super().__init__([group.reader for group in groups])
        self._groups, self._main = list(groups), main
        self.starts, self.stream_shards = starts, main.reader.stream_shards

    def needs(self, ids: Int64) -> list[Any]:
        """Return what must be fetched to read some samples."""
        needs: list[Any] = []
        for part, group in enumerate(self._groups):
            rows = group.rows.rows(ids)
            needs += self._needs_of(part, rows[rows != MISSING])
        return needs

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return the location of a sample in the main data set: stream, shard, that shard's file, and row."""
        return self._main.reader.locate(self._main.rows.row(sample_id))

    def describe(self, sample_id: int) -> str:
        """Return what errors call a sample of the main data set."""
        return self._main.reader.describe(self._main.rows.row(sample_id))

    def row(self, sample_id: int) -> Sample:
        """Return one sample."""
        sample: Sample = {}
        for group in self._groups:
            row = group.rows.row(sample_id)
            if row == MISSING:
                values = dict.fromkeys(group.names.values())
            else:
                values = group.reader.row(row)
                if group.renames:
                    values = _rename(values, group.names)
            if sample:
                sample.update(values)
            else:
                sample = values
        return sample

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples."""
        samples: list[Sample] = []
        for group in self._groups:
            values = _read_rows(group, group.rows.rows(ids))
            if samples:
                for sample, more in zip(samples, values):
                    sample.update(more)
            else:
                samples = values
        return samples

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column."""
        batch: dict[str, ColumnValues] = {}
        for group in self._groups:
            batch.update(_read_batch(group, group.rows.rows(ids)))
        return batch

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of samples."""
        groups = [_read_batches(group, group.rows.rows(ids), parts) for group in self._groups]
        for batches in zip(*groups):
            joined: dict[str, ColumnValues] = {}
            for batch in batches:
                joined.update(batch)
            yield joined


def _rename(batch: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[name]: values for name, values in batch.items()}


def _read_rows(group: ColumnGroup, rows: Int64) -> list[Sample]:
    present = rows != MISSING
    if not present.all():
        samples: list[Sample] = [dict.fromkeys(group.names.values()) for _ in range(len(rows))]
        found = _read_rows(group, rows[present]) if present.any() else []
        for place, sample in zip(np.flatnonzero(present).tolist(), found):
            samples[place] = sample
        return samples
    samples = group.reader.rows(rows)
    return [_rename(sample, group.names) for sample in samples] if group.renames else samples


def _read_batch(group: ColumnGroup, rows: Int64) -> dict[str, ColumnValues]:
    if (rows != MISSING).all():
        return _rename(group.reader.batch(rows), group.names)
    samples = _read_rows(group, rows)
    return {name: [sample[name] for sample in samples] for name in group.names.values()}


def _read_batches(
    group: ColumnGroup, rows: Int64, parts: Sequence[slice]
) -> Iterator[dict[str, ColumnValues]]:
    if (rows == MISSING).any():
        yield from (_read_batch(group, rows[part]) for part in parts)
        return
    for batch in group.reader.batches(rows, parts):
        yield _rename(batch, group.names)


class ConcatReader(CombinedReader):
    """Reader of several others, end to end; the attributes are those of `SampleReader`."""

    def __init__(self, readers: Sequence[SampleReader], *, one_stream: bool) -> None:
        """Concatenate readers.

        Args:
            readers: The readers.
            one_stream: Whether they are one stream, rather than each its own.
        """
        super().__init__(readers)
        sizes = [int(reader.starts[-1]) for reader in readers]
        self._bounds = list(accumulate(sizes, initial=0))
        starts = [np.asarray(r.starts)[:-1] + first for r, first in zip(readers, self._bounds)]
        self.starts: Int64 = np.concatenate([*starts, np.array(self._bounds[-1:], np.int64)])
        self._shards = list(accumulate((len(r.starts) - 1 for r in readers), initial=0))
        self.decodes_lazily = False
        self._one_stream = one_stream
        self._has_arrays_only = True  # as far as is known; slices of these are faster than merges
        self.stream_shards = [0, self._shards[-1]] if one_stream else self._shards

    def _find(self, sample_id: int) -> tuple[int, int]:
        part = bisect_right(self._bounds, sample_id) - 1
        return part, sample_id - self._bounds[part]

    def _split(self, ids: Int64) -> list[tuple[int, Int64, Int64]]:
        """Return each part that has some of the samples, their places among `ids`, and their ids in it."""
        parts = np.searchsorted(self._bounds, ids, side="right") - 1
        split = []
        for part in np.unique(parts).tolist():
            places = np.flatnonzero(parts == part)
            split.append((part, places, ids[places] - self._bounds[part]))
        return split

    def needs(self, ids: Int64) -> list[Any]:
        """Return what must be fetched to read some samples."""
        split = sorted(self._split(ids.reshape(-1)), key=lambda some: int(some[1][0]))
        return [need for part, _, mine in split for need in self._needs_of(part, mine)]

    def file_of(self, need: Any) -> tuple[int, str]:
        """Return the number of a need's first shard over all readers, and the name of its first file."""
        number, name = super().file_of(need)
        return self._shards[need.part] + number, name

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return the location of a sample: stream, shard in it, that shard's file, and row in it."""
        part, own = self._find(sample_id)
        stream, shard, name, row = self._readers[part].locate(own)
        if self._one_stream:
            return 0, self._shards[part] + shard, name, row
        return part + stream, shard, name, row

    def describe(self, sample_id: int) -> str:
        """Return what errors call a sample."""
        part, own = self._find(sample_id)
        return self._readers[part].describe(own)

    def row(self, sample_id: int) -> Sample:
        """Return one sample."""
        part, own = self._find(sample_id)
        return self._readers[part].row(own)

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples."""
        samples: list[Sample] = [{}] * len(ids)
        for part, places, mine in self._split(ids):
            for place, sample in zip(places.tolist(), self._readers[part].rows(mine)):
                samples[place] = sample
        return samples

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column; they must have the same columns."""
        split = self._split(ids)
        return self._merged(ids, [(at, self._readers[n].batch(mine)) for n, at, mine in split])

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of samples."""
        if self._has_arrays_only:
            batch = self.batch(ids)
            if all(isinstance(values, np.ndarray) for values in batch.values()):
                yield from ({name: v[part] for name, v in batch.items()} for part in parts)
                return
            self._has_arrays_only = False
        bounds = [(part.start, part.stop) for part in parts]
        read = []
        for number, places, mine in self._split(ids):
            inner = [slice(*pair) for pair in np.searchsorted(places, bounds).tolist()]
            some = [part for part in inner if part.start < part.stop]
            read.append((places, inner, self._readers[number].batches(mine, some)))
        # Merged batch by batch: whether values are an array must not depend on other batches.
        for number, part in enumerate(parts):
            yield self._merged(
                ids[part],
                [
                    (places[inner[number]] - part.start, next(batches))
                    for places, inner, batches in read
                    if inner[number].start < inner[number].stop
                ],
            )

    def _merged(
        self, ids: Int64, split: Sequence[tuple[Int64, dict[str, ColumnValues]]]
    ) -> dict[str, ColumnValues]:
        """Return the columns of samples from those of each part, with their places among `ids`."""
        if len(split) == 1:
            return split[0][1]
        names = list(split[0][1]) if split else []
        for _, batch in split:
            if batch.keys() != set(names):
                raise DataError(
                    f"some samples have the columns {list(batch)}, others {names}; choose those that all "
                    "have with columns=, or iterate over samples"
                )
        merged = {
            name: _merge(len(ids), [(at, batch[name]) for at, batch in split]) for name in names
        }
        if mixed := [name for name, values in merged.items() if values is None]:
            samples = self.rows(ids)
            merged.update({name: [sample[name] for sample in samples] for name in mixed})
        return merged  # type: ignore[return-value]  # None was replaced


def _merge(size: int, parts: Sequence[tuple[Int64, ColumnValues]]) -> ColumnValues | None:
    """Return the values of all parts at their places; None if some are arrays, and not all are alike."""
    first = parts[0][1]
    kinds = {(v.dtype, v.shape[1:]) if isinstance(v, np.ndarray) else None for _, v in parts}
    if kinds == {None}:
        listed: list[Any] = [None] * size
        for places, values in parts:
            for place, value in zip(places.tolist(), values):
                listed[place] = value
        return listed
    if len(kinds) > 1 or not isinstance(first, np.ndarray):
        return None
    merged = np.empty((size, *first.shape[1:]), first.dtype)
    for places, values in parts:
        merged[places] = values
    return merged
