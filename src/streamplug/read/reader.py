"""Reads samples by id, one or many, over the shards of all streams."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamplug.errors import DataError
from streamplug.interfaces import Column
from streamplug.read.shards import OpenShard, OpenShards
from streamplug.types import ColumnValues, Int64, Sample

_SWEEP = 64
"""Rows asked of one shard at once from which on it pays to map the whole file."""


class Reader:
    """Reads samples by id.

    Attributes:
        starts: First sample id of each shard over all streams, and the total.
        stream_shards: First shard of each stream, and the total.
    """

    def __init__(self, samples: Sequence[Int64], shards: Sequence[OpenShards]) -> None:
        """Read from the shards of some streams.

        Args:
            samples: Samples of each shard, for each stream.
            shards: Opens the shards of each stream.
        """
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(samples))])
        self._streams = list(shards)
        self.stream_shards: list[int] = np.cumsum([0, *map(len, samples)]).tolist()
        self._bounds = self._lookup()

    def _lookup(self) -> memoryview:
        # To find a single sample quickly, without a Python number for every shard.
        return memoryview(self.starts)  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bounds": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bounds = self._lookup()

    def shards_of(self, ids: Int64) -> list[int]:
        """Return the distinct shards of some samples, in the order of first need."""
        shards = np.searchsorted(self.starts, ids.reshape(-1), side="right") - 1
        distinct, first = np.unique(shards, return_index=True)
        return distinct[np.argsort(first)].tolist()  # type: ignore[no-any-return]

    def open(self, shard: int) -> OpenShard:
        """Return an open shard, by its number over all streams."""
        stream = bisect_right(self.stream_shards, shard) - 1
        return self._streams[stream].get(shard - self.stream_shards[stream])

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return where a sample lies: stream, shard in it, that shard's file, and place in it."""
        shard = bisect_right(self._bounds, sample_id) - 1
        stream = bisect_right(self.stream_shards, shard) - 1
        number = shard - self.stream_shards[stream]
        name = self._streams[stream].basename(number)
        return stream, number, name, sample_id - self._bounds[shard]

    def row(self, sample_id: int) -> Sample:
        """Return one sample.

        Raises:
            StreamplugError: If its shard cannot be had or is damaged.
        """
        number = bisect_right(self._bounds, sample_id) - 1
        shard = self.open(number)
        try:
            return shard.reader.row(sample_id - self._bounds[number], shard.columns)
        except DataError as error:
            raise shard.located(error) from error

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples, in the order of `ids`.

        Raises:
            StreamplugError: As for `row`.
        """
        out: list[Sample] = [{}] * len(ids)
        for shard, places, values in self._taken(ids):
            names = [column.name for column in shard.columns]
            split = [c.encoding.split(v) for c, v in zip(shard.columns, values)]
            for place, row in zip(places.tolist(), zip(*split)):
                out[place] = dict(zip(names, row))
        return out

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column, in the order of `ids`.

        Raises:
            StreamplugError: As for `row`.
            DataError: If the samples do not all have the same columns.
        """
        parts = list(self._taken(ids))
        columns = parts[0][0].columns if parts else ()
        names = [column.name for column in columns]
        for shard, _, _ in parts:
            if [column.name for column in shard.columns] != names:
                raise DataError(
                    f"{shard.where} has the columns {[c.name for c in shard.columns]}, others {names}; "
                    "choose those that all have with columns=, or iterate over samples"
                )
        places = [part[1] for part in parts]
        return {
            column.name: _merge(len(ids), places, [(p[0].columns[i], p[2][i]) for p in parts])
            for i, column in enumerate(columns)
        }

    def _taken(self, ids: Int64) -> Iterator[tuple[OpenShard, Int64, list[ColumnValues]]]:
        """Yield, for each shard concerned, where its samples go and the values of its columns."""
        numbers = np.searchsorted(self.starts, ids, side="right") - 1
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for places in np.split(order, cuts) if len(ids) else ():
            number = int(numbers[places[0]])
            shard = self.open(number)
            if not shard.populated and len(places) >= _SWEEP:
                shard.populate()
            try:
                values = shard.reader.take(ids[places] - self.starts[number], shard.columns)
            except DataError as error:
                raise shard.located(error) from error
            yield shard, places, values


def _merge(
    count: int, places: Sequence[Int64], parts: Sequence[tuple[Column, ColumnValues]]
) -> ColumnValues:
    """Put the values that several shards gave for one column into one array or list."""
    first = parts[0][1]
    if isinstance(first, np.ndarray) and all(
        isinstance(v, np.ndarray) and v.dtype == first.dtype and v.shape[1:] == first.shape[1:]
        for _, v in parts
    ):
        array = np.empty((count, *first.shape[1:]), first.dtype)
        for place, (_, values) in zip(places, parts):
            array[place] = values
        return array
    merged: list[object] = [None] * count
    for place, (column, values) in zip(places, parts):
        for to, value in zip(place.tolist(), column.encoding.split(values)):
            merged[to] = value
    return merged
