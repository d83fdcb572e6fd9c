"""`Reader`: samples by id, single or as batches, over the shards of all streams; repairs damaged ones."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from streamplug.errors import DataError
from streamplug.heap import keep_freed_memory
from streamplug.plugin_kit import PlacedValues, merge_values
from streamplug.read.gather import (
    Batch,
    GatheredValues,
    ShardGroups,
    gather_batches,
    gather_values,
    make_samples,
    slice_columns,
)
from streamplug.read.open_shards import OpenShard
from streamplug.read.stream_shards import Need, NeedFetcher, StreamShards, first_shard
from streamplug.transfer import PrefetchLimits
from streamplug.types import ColumnValues, Int64, Sample

T = TypeVar("T")


class Reader:
    """Reader of samples by id; the attributes are those of `SampleReader`."""

    def __init__(self, starts: Sequence[Int64], shards: Sequence[StreamShards]) -> None:
        """Read from streams; `starts` has the first sample id of each shard in its stream, and the total."""
        self.starts = starts[0] if len(starts) == 1 else _concatenate_starts(starts)
        self._streams = list(shards)
        self.stream_shards = [0, *accumulate(len(of_stream) - 1 for of_stream in starts)]
        self._index_shards()
        keep_freed_memory()
        # Any of them fetches the partial needs of all, at once within one limit.
        self._fetching = next((stream for stream in shards if not stream.is_whole), None)
        self.prefetch_limits = PrefetchLimits.common(stream.prefetch_limits for stream in shards)
        limits = [stream.limit for stream in shards]
        self.cache_limit = min((limit for limit in limits if limit is not None), default=None)
        # With a limit, evicted shards are closed soon: their batches must not be decoded later.
        self.decodes_lazily = (
            self.cache_limit is None and self._fetching is None and _are_uniform(shards)
        )

    def _index_shards(self) -> None:
        """Set up the fast lookup of a single sample, without a Python int for every shard."""
        self._bounds = memoryview(self.starts)  # type: ignore[arg-type]  # an array is a buffer
        single = self._streams[0] if len(self._streams) == 1 else None
        self._open: Mapping[int, OpenShard] = {} if single is None else single.lock_free

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bounds": None, "_open": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index_shards()
        keep_freed_memory()

    def shards_of(self, ids: Int64) -> list[int]:
        """Return the distinct shards of some samples, in the order of first need."""
        shards = np.searchsorted(np.asarray(self.starts), ids.reshape(-1), side="right") - 1
        return list(dict.fromkeys(shards.tolist()))

    def open(self, shard: int) -> OpenShard:
        """Return an open shard; `shard` counts the shards of all streams."""
        shards, number = self._find(shard)
        return shards.get(number)

    def open_uniform(self, numbers: Sequence[int], first: int) -> list[OpenShard]:
        """Return the open shard ``numbers[first]``, and those after it that can be read together with it."""
        shards = [self.open(numbers[first])]
        kind = shards[0].kind
        for number in numbers[first + 1 :] if kind is not None else ():
            # With a limit, nothing is downloaded while other shards are held.
            shard = self.open(number) if self.cache_limit is None else self._if_open(number)
            if shard is None or (shard.kind is not kind and not _are_equal(shard.kind, kind)):
                break
            shards.append(shard)
        return shards

    def _find(self, shard: int) -> tuple[StreamShards, int]:
        stream = bisect_right(self.stream_shards, shard) - 1
        return self._streams[stream], shard - self.stream_shards[stream]

    def needs(self, ids: Int64) -> list[Need]:
        """Return what must be fetched to read some samples, in the order of first need."""
        if self._fetching is None:
            return self.shards_of(ids)  # type: ignore[return-value]  # lists are invariant
        groups = ShardGroups(np.asarray(self.starts), ids)
        ordered = sorted(groups, key=lambda group: int(group[1][0]))
        order = {number: at for at, (number, _) in enumerate(ordered)}
        needs = (
            need
            for stream, rows in self._split_by_stream(groups, ordered).items()
            for need in self._streams[stream].needs(self.stream_shards[stream], rows)
        )
        return sorted(needs, key=lambda need: order[first_shard(need)])

    def _split_by_stream(
        self, groups: ShardGroups, ordered: Iterable[tuple[int, Int64]]
    ) -> dict[int, list[tuple[int, Int64]]]:
        """Return shards in an order, each with its rows, by stream, in which they are numbered."""
        split: dict[int, list[tuple[int, Int64]]] = {}
        for number, places in ordered:
            stream = bisect_right(self.stream_shards, number) - 1
            shard = number - self.stream_shards[stream]
            split.setdefault(stream, []).append((shard, groups.rows[places]))
        return split

    def weight(self, need: Need) -> int:
        """Return the approximate bytes of a need."""
        if not isinstance(need, int):
            return need.weight
        shards, shard = self._find(need)
        return shards.info(shard).raw_bytes

    def ensure(self, need: Need) -> None:
        """Fetch a need, unless it is cached."""
        if isinstance(need, int):
            self.open(need)
        else:
            need.ensure()

    def file_of(self, need: Need) -> tuple[int, str]:
        """Return the number of a need's first shard, and the name of that shard's first file."""
        number = first_shard(need)
        shards, shard = self._find(number)
        return number, shards.info(shard).basename

    def claim(self, need: Need) -> None:
        """Keep a shard open until it is released as often as it was claimed."""
        if isinstance(need, int):
            shards, shard = self._find(need)
            shards.keep(shard, 1)

    def release(self, need: Need) -> None:
        """Free a partial need, or release a claim of a shard."""
        if isinstance(need, int):
            shards, shard = self._find(need)
            shards.keep(shard, -1)
        else:
            need.release()

    def _start_fetching(self, groups: ShardGroups) -> NeedFetcher:
        if self._fetching is None:
            return NeedFetcher()
        missing = [
            need
            for stream, rows in self._split_by_stream(groups, groups).items()
            for need in self._streams[stream].missing(self.stream_shards[stream], rows)
        ]
        return self._fetching.start_fetching(missing)

    def remember_failures(self) -> None:
        """Raise the error of a shard that cannot be opened again without another attempt, from now on.

        Earlier errors are forgotten.
        """
        for shards in self._streams:
            shards.remember_failures()

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return the location of a sample: stream, shard in it, that shard's file, and row in it."""
        shard = bisect_right(self._bounds, sample_id) - 1
        stream = bisect_right(self.stream_shards, shard) - 1
        number = shard - self.stream_shards[stream]
        name = self._find(shard)[0].info(number).basename
        return stream, number, name, sample_id - self._bounds[shard]

    def describe(self, sample_id: int) -> str:
        """Return what errors call a sample: its own file if known, or the shard's file and the row."""
        *_, file, row = self.locate(sample_id)
        number = bisect_right(self._bounds, sample_id) - 1
        shards, shard = self._find(number)
        opened = shards.if_open(shard)
        name_of = None if opened is None else opened.name_of
        return (name_of and name_of(row)) or f"{file}, row {row}"

    def row(self, sample_id: int) -> Sample:
        """Return one sample."""
        number = bisect_right(self._bounds, sample_id) - 1
        shard = self._open.get(number)
        if shard is None:
            shard = self.open(number)
        shard.recent = True
        row = sample_id - self._bounds[number]
        try:
            read = shard.row
            if read is None:
                read = shard.row = shard.row_reader()
            return read(row)
        except DataError as error:
            return self._read_repaired(
                number, shard, error, lambda repaired: repaired.row_reader()(row)
            )[1]

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many samples, in the order of `ids`."""
        out: list[Sample] = [{}] * len(ids)
        for shard, places, values in self._gather(ids):
            names = [column.name for column in shard.columns]
            split = [c.encoding.unbatch(v) for c, v in zip(shard.columns, values)]
            shard.check_counts(split, len(ids) if places is None else len(places))
            samples = make_samples(names, split)
            if places is None:
                return samples
            for place, sample in zip(places.tolist(), samples):
                out[place] = sample
        return out

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many samples column by column, in the order of `ids`; they must have the same columns."""
        gathered = list(self._gather(ids))
        columns = gathered[0].shard.columns if gathered else ()
        parts: dict[str, list[PlacedValues]] = {column.name: [] for column in columns}
        for shard, places, values in gathered:
            if places is None:
                return dict(zip(parts, values))
            names = [column.name for column in shard.columns]  # streams may have them in any order
            if set(names) != parts.keys():
                raise DataError(
                    f"{shard.where} has the columns {names}, others {list(parts)}; choose those that all "
                    "have with columns=, or iterate over samples"
                )
            for column, of_column in zip(shard.columns, values):
                parts[column.name].append((places, column, of_column))
        return {name: merge_values(len(ids), of_column) for name, of_column in parts.items()}

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[Batch]:
        """Return batches of samples that are located at once; see `decodes_lazily`.

        `parts` are consecutive, non-empty slices of `ids`. Decoding errors may be raised by the iterator.
        """
        if not (self.decodes_lazily and len(ids)):
            return slice_columns(self.batch(ids), parts)
        groups = ShardGroups(np.asarray(self.starts), ids)
        shards = self.open_uniform(groups.shards, 0)
        return gather_batches(shards, groups, parts, lambda part: self.batch(ids[part]))

    def _gather(self, ids: Int64) -> Iterator[GatheredValues]:
        groups = ShardGroups(np.asarray(self.starts), ids)
        with self._start_fetching(groups) as fetcher:
            stop = 0
            while stop < len(groups.shards):
                shards = self.open_uniform(groups.shards, stop)
                part = slice(stop, stop + len(shards))
                stop = part.stop
                number = groups.shards[part.start]  # shards with partial needs are read one by one
                fetcher.wait(number)
                try:
                    gathered: Iterable[GatheredValues] = [gather_values(shards, groups, part)]
                except Exception:  # noqa: BLE001 - reading shard by shard finds the damaged one
                    gathered = self._gather_one_by_one(shards, groups, part)
                yield from gathered
                fetcher.release(number)

    def _if_open(self, number: int) -> OpenShard | None:
        shards, shard = self._find(number)
        return shards.if_open(shard)

    def _gather_one_by_one(
        self, shards: Sequence[OpenShard], groups: ShardGroups, part: slice
    ) -> Iterable[GatheredValues]:
        """Read the samples shard by shard, repairing damaged shards."""
        for shard, at in zip(shards, range(part.start, part.stop)):
            places = groups.places(slice(at, at + 1))
            rows = groups.rows[places]
            try:
                yield GatheredValues(shard, places, shard.take(rows))
            except DataError as error:
                repaired, values = self._read_repaired(
                    groups.shards[at], shard, error, partial(OpenShard.take, rows=rows)
                )
                yield GatheredValues(repaired, places, values)

    def _read_repaired(
        self, number: int, shard: OpenShard, error: DataError, read: Callable[[OpenShard], T]
    ) -> tuple[OpenShard, T]:
        """Read again from a damaged shard, if it can be downloaded again."""
        located = shard.located(error)
        shards, of_stream = self._find(number)
        repaired = shards.repair(of_stream, shard, located)
        if repaired is None:
            located.is_as_indexed = shard.is_as_indexed(shards.info(of_stream))
            raise located from error
        try:
            return repaired, read(repaired)
        except DataError as still:
            raise repaired.located(still) from still


def _are_uniform(shards: Iterable[StreamShards]) -> bool:
    kinds = [kind for stream in shards for kind in stream.kinds]
    return bool(kinds) and kinds[0] is not None and all(_are_equal(k, kinds[0]) for k in kinds)


def _are_equal(one: object, other: object) -> bool:
    """Return whether kinds of shards are equal; not if a decoder refuses to tell, as one with arrays does."""
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - decoders can raise anything
        return False


def _concatenate_starts(starts: Sequence[Int64]) -> Int64:
    before = [0, *accumulate(int(of_stream[-1]) for of_stream in starts)]
    parts = [of_stream[:-1] + first for of_stream, first in zip(starts, before)]
    return np.concatenate([*parts, np.array(before[-1:], np.int64)])
