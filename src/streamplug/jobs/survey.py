"""Tells of a data set what a page about it shows: its shards, and how its values are spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamplug.errors import StreamplugError
from streamplug.fetch.temporary import TemporaryDirectory
from streamplug.index import Index
from streamplug.interfaces import Encoding
from streamplug.jobs.inspection import Inspected, inspect
from streamplug.jobs.previews import Preview, preview
from streamplug.jobs.settings import Place
from streamplug.jobs.sources import streams
from streamplug.jobs.spread import Spread, spread
from streamplug.jobs.stored import as_stored
from streamplug.jobs.table import near, raw_sizes
from streamplug.stream import Stream, read_all
from streamplug.types import Int64

_CELLS = 720
"""Shards that are told one by one; of more, some in a row are told together."""
_NEAR, _FAR = 24, 4
"""From how many shards samples are taken; from so few if they must be fetched and have enough."""
_FETCHED = 256 << 20
"""Bytes of shards that are fetched for it, but for the first."""
_READ = 256 << 20
"""Bytes of values that are looked at."""
_AT_ONCE = 8 << 20
_KEPT = 12
"""Previews of a column."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A shard, or some in a row.

    Attributes:
        first: Number of the first.
        shards: How many.
        name: Of the first one's file.
        samples: How many they have.
        raw_bytes: Of their files, not compressed.
        stored_bytes: Of their files, as they are stored.
        compression: How they are compressed, or None; that of the first.
    """

    first: int
    shards: int
    name: str
    samples: int
    raw_bytes: int
    stored_bytes: int
    compression: str | None


@dataclass(slots=True)
class ColumnSurvey:
    """What was seen of a column.

    Attributes:
        name: Its name.
        encodings: Its encodings, of which most columns have one.
        stored: How many bytes the values have, as they are stored.
        measure: What `numbers` are: ``"characters"``, ``"length"`` (of the first axis, or of bytes), or
            ``"value"``.
        numbers: How those are spread.
        previews: Of some values, with the numbers of their samples.
        notes: How often a value was not shown, by the reason.
    """

    name: str
    encodings: tuple[str, ...]
    stored: Spread | None = None
    measure: str = ""
    numbers: Spread | None = None
    previews: list[tuple[int, Preview]] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """What a page about a data set shows.

    Attributes:
        set: What the data set is; without samples.
        cells: Its shards.
        shard_samples: How many samples shards have.
        shard_raw: How many bytes, not compressed.
        shard_stored: How many bytes, as they are stored.
        columns: Its columns.
        samples: Its first samples: the previews of their values by column.
        seen: How many samples were looked at.
        seen_shards: In how many shards.
        sample_bytes: How many bytes those samples have, as they are stored.
        failures: What could not be read.
    """

    set: Inspected
    cells: tuple[Cell, ...]
    shard_samples: Spread | None
    shard_raw: Spread | None
    shard_stored: Spread | None
    columns: tuple[ColumnSurvey, ...]
    samples: tuple[tuple[int, dict[str, Preview]], ...]
    seen: int
    seen_shards: int
    sample_bytes: Spread | None
    failures: tuple[str, ...]


def survey(
    source: Place | Stream,
    *,
    samples: int = 3,
    measured: int = 256,
    allow_unsafe_types: bool = False,
) -> Survey:
    """Look at a data set more closely than `inspect`, with an amount of work that has a limit.

    Args:
        source: A path, a URL or a stream.
        samples: How many of its first samples to show.
        measured: Of about how many samples to tell sizes, lengths and values; with 0 for both, nothing
            but the index is read. They are of up to 24 shards, of fewer if shards must be fetched.
        allow_unsafe_types: Whether to decode what can run code.

    Raises:
        StreamplugError: If it has no index that can be used.
    """
    stream = streams(source)[0]
    told = inspect(stream, samples=0)
    with TemporaryDirectory() as folder:
        stream = near([stream], folder, whole=False)[0]
        index = stream.open().index
        raw, stored = raw_sizes(index), _stored_sizes(index)
        fetched = stream.cache is not None
        groups = list(_groups(index, stored, samples, measured, fetched=fetched))
        seen = _Seen(samples, -(-_KEPT // max(len(groups), 1)), allow_unsafe_types)
        for ids in groups:
            if not seen.look(stream, index, ids):
                break
        columns = dict.fromkeys(
            column.name for schema in index.schemas for column in schema.columns
        )
        return Survey(
            set=told,
            cells=tuple(_cells(index, raw, stored)),
            shard_samples=spread(index.samples),
            shard_raw=spread(raw),
            shard_stored=spread(stored),
            columns=tuple(seen.column(name, index) for name in columns),
            samples=tuple(seen.first.items()),
            seen=len(seen.bytes),
            seen_shards=len(seen.shards),
            sample_bytes=spread(seen.bytes),
            failures=tuple(seen.failures),
        )


def _stored_sizes(index: Index) -> Int64:
    """Return how many bytes the files of each shard have, as they are stored, shape ``[shards]``."""
    sizes: Int64 = np.zeros(len(index), np.int64)
    for name, raw in index.tables.items():
        if name.startswith("raw_"):
            packed = index.tables.get(f"zip_{name[4:]}")
            sizes += (
                raw.bytes if packed is None else np.where(packed.bytes, packed.bytes, raw.bytes)
            ).astype(np.int64)
    return sizes


def _cells(index: Index, raw: Int64, stored: Int64) -> Iterator[Cell]:
    count = len(index)
    if not count:
        return
    firsts = np.unique(np.linspace(0, count, min(count, _CELLS), endpoint=False).astype(np.int64))
    shards = np.diff(firsts, append=count)
    sums = [np.add.reduceat(each, firsts).tolist() for each in (index.samples, raw, stored)]
    names = [table.basenames for key, table in index.tables.items() if key.startswith("raw_")]
    for n, first in enumerate(firsts.tolist()):
        name = next((name for each in names if (name := each[first])), "")
        samples, raw_bytes, stored_bytes = (each[n] for each in sums)
        packed = index.schema(first).compression
        yield Cell(first, int(shards[n]), name, samples, raw_bytes, stored_bytes, packed)


# -- samples ------------------------------------------------------------------------------


def _groups(
    index: Index, stored: Int64, first: int, measured: int, *, fetched: bool
) -> Iterator[Int64]:
    """Yield the samples to look at, those of one shard at a time."""
    shards = np.flatnonzero(index.samples)
    wanted = max(-(-measured * len(shards) // max(index.size, 1)), _FAR) if fetched else _NEAR
    most = min(wanted, _NEAR, measured, len(shards))
    shards = shards[np.unique(np.linspace(0, len(shards) - 1, most).astype(np.int64))]
    if fetched:
        shards = shards[(np.cumsum(stored[shards]) <= _FETCHED) | (np.arange(len(shards)) == 0)]
    each = -(-measured // max(len(shards), 1))
    ids = [np.arange(min(first, index.size), dtype=np.int64)]
    for shard in shards.tolist():
        start, stop = index.starts[shard : shard + 2].tolist()
        ids.append(
            np.unique(np.linspace(start, stop - 1, min(each, stop - start)).astype(np.int64))
        )
    chosen = np.unique(np.concatenate(ids))
    of = np.searchsorted(np.asarray(index.starts), chosen, side="right") - 1
    yield from np.split(chosen, np.flatnonzero(np.diff(of)) + 1) if len(chosen) else ()


class _Seen:
    """What was seen of samples up to now."""

    def __init__(self, first: int, of_a_shard: int, allow_unsafe_types: bool) -> None:
        self._first, self._of_a_shard, self._unsafe = first, of_a_shard, allow_unsafe_types
        self.first: dict[int, dict[str, Preview]] = {}
        self.bytes: list[int] = []
        self.shards: set[int] = set()
        self.failures: list[str] = []
        self._sizes: dict[str, list[int]] = defaultdict(list)
        self._numbers: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._previews: dict[str, list[tuple[int, Preview]]] = defaultdict(list)
        self._notes: dict[str, dict[str, int]] = defaultdict(dict)
        self._reader: Any = None
        self._left = _READ
        self._most = 0

    def look(self, stream: Stream, index: Index, ids: Int64) -> bool:
        """Look at some samples of one shard; returns whether to go on."""
        shard = int(np.searchsorted(np.asarray(index.starts), ids[0], side="right")) - 1
        self._most += self._of_a_shard
        schema = index.schema(shard)
        encodings = {column.name: column.encoding for column in schema.columns}
        try:
            if self._reader is None:
                names = {column.name for schema in index.schemas for column in schema.columns}
                decoders = {**(stream.decoders or {}), **dict.fromkeys(names, as_stored)}
                self._reader = read_all([replace(stream, decoders=decoders).open()], None)
            row = int(raw_sizes(index)[shard]) // max(int(index.samples[shard]), 1)
            for part in np.array_split(ids, -(-len(ids) * row // _AT_ONCE) or 1):
                for sample, values in zip(part.tolist(), self._reader.rows(part)):
                    self._take(sample, values, encodings)
                if self._left <= 0:
                    self.failures.append("Values are large: fewer samples were looked at.")
                    return False
        except StreamplugError as error:
            self.failures.append(f"Shard {shard:,}: {error}")
            return True
        self.shards.add(shard)
        return True

    def _take(self, sample: int, values: dict[str, Any], encodings: dict[str, Encoding]) -> None:
        shown: dict[str, Preview] = {}
        size = 0
        for name, value in values.items():
            size += len(value or b"")
            self._sizes[name].append(len(value or b""))
            kept = self._previews[name]
            keep = len(kept) < min(self._most, _KEPT)
            draw = keep or sample < self._first
            seen = preview(encodings[name], value, draw=draw, allow_unsafe_types=self._unsafe)
            shown[name] = seen
            if seen.measure:
                self._numbers[name, seen.measure].append(seen.number)
            elif not (seen.text or seen.images):
                notes = self._notes[name]
                if seen.note in notes or len(notes) < _KEPT:
                    notes[seen.note] = notes.get(seen.note, 0) + 1
            if keep and (seen.text or seen.images):
                kept.append((sample, seen))
        self.bytes.append(size)
        self._left -= size
        if sample < self._first:
            self.first[sample] = shown

    def column(self, name: str, index: Index) -> ColumnSurvey:
        """Return what was seen of a column."""
        found = [schema.column(name) for schema in index.schemas]
        specs = tuple(dict.fromkeys(column.spec for column in found if column is not None))
        measures = {of: n for (column, of), n in self._numbers.items() if column == name}
        measure = max(measures, key=lambda of: len(measures[of]), default="")
        return ColumnSurvey(
            name,
            specs,
            spread(self._sizes[name]),
            measure,
            spread(measures[measure]) if measure else None,
            self._previews[name],
            self._notes[name],
        )
