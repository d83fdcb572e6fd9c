"""Statistics and previews of sampled values, by column."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamplug.errors import ConfigError, DataError, StreamplugError
from streamplug.index import Index
from streamplug.interfaces import Encoding
from streamplug.read import SampleReader
from streamplug.source import OpenSources
from streamplug.stream import Stream
from streamplug.types import Int64, Sample
from streamplug_tools.histogram import Histogram, make_histogram
from streamplug_tools.previews import Preview, preview, preview_value
from streamplug_tools.raw_values import keep_raw

_MAX_SAMPLED_BYTES = 256 << 20
_BYTES_PER_READ = 8 << 20
MAX_PREVIEWS = 12
"""Previews, and notes, per column."""
_MAX_COUNTED_VALUES = 20
_MAX_LABEL_CHARS = 60


@dataclass(slots=True)
class ColumnStatistics:
    """Statistics and previews of a column.

    Attributes:
        name: Name of the column.
        encodings: Encodings; most columns have one.
        stored: Histogram of stored bytes per value; None if unknown.
        measure: Meaning of `numbers`: ``"characters"``, ``"length"`` (of the first axis, or of bytes), or
            ``"value"``.
        numbers: Histogram of that measure.
        previews: Sample numbers and previews.
        notes: Number of values without a preview, by reason.
        counts: Number of values by value, the most frequent first, if there are few and they repeat.
    """

    name: str
    encodings: tuple[str, ...]
    stored: Histogram | None = None
    measure: str = ""
    numbers: Histogram | None = None
    previews: list[tuple[int, Preview]] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


class Values:
    """Reader of stored values; of decoded ones where a format cannot give stored values."""

    def __init__(self, stream: Stream, index: Index, *, allow_unsafe_types: bool) -> None:
        """Read from a stream with this index."""
        self._stream, self._unsafe = stream, allow_unsafe_types
        columns = [column for schema in index.schemas for column in schema.columns]
        self._names = {column.name for column in columns}
        self._unsafe_columns = {column.name for column in columns if column.encoding.unsafe}
        self._raw = index.raw_shard_bytes
        self._index = index
        self._reader: SampleReader | None = None
        self.decode_values = False

    def row_bytes(self, shard: int) -> int:
        """Return the average bytes per sample of a shard."""
        return int(self._raw[shard]) // max(int(self._index.samples[shard]), 1)

    def read(self, ids: Int64) -> list[Sample]:
        """Return samples.

        Raises:
            StreamplugError: If they cannot be read.
        """
        try:
            return self._open().rows(ids)
        except (ConfigError, DataError):
            if self.decode_values:
                raise
        self._reader, self.decode_values = None, True
        try:
            return self._open().rows(ids)
        except StreamplugError:
            self._reader, self.decode_values = None, False
            raise

    def _open(self) -> SampleReader:
        if self._reader is None:
            stored = (
                self._names
                if not self.decode_values
                else set()
                if self._unsafe
                else self._unsafe_columns
            )
            decoders = {**(self._stream.decoders or {}), **dict.fromkeys(stored, keep_raw)}
            opened = OpenSources.open([replace(self._stream, decoders=decoders)])
            self._reader = opened.make_reader(None)
        return self._reader


class ColumnSampler:
    """Collector of statistics and previews.

    Attributes:
        sample_previews: Previews of those samples, by number and column.
        count: Number of samples read.
        bytes: Stored bytes of each.
        shards: Number of shards of which samples were read.
        failures: Errors of reading.
    """

    def __init__(
        self,
        values: Values,
        index: Index,
        *,
        preview_ids: frozenset[int],
        share: int,
        allow_unsafe_types: bool,
    ) -> None:
        """Create an empty collector.

        Args:
            values: Reader of the samples.
            index: Index of the data set.
            preview_ids: Numbers of the samples whose previews are all kept.
            share: Previews per column and shard.
            allow_unsafe_types: Whether to decode columns whose decoding can run code.
        """
        self._values, self._index = values, index
        self._preview_ids, self._share, self._unsafe = preview_ids, share, allow_unsafe_types
        self.sample_previews: dict[int, dict[str, Preview]] = {}
        self.count = self.shards = 0
        self.bytes: list[int] = []
        self.failures: list[str] = []
        self._sizes: dict[str, list[int]] = defaultdict(list)
        self._numbers: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._previews: dict[str, list[tuple[int, Preview]]] = defaultdict(list)
        self._notes: dict[str, dict[str, int]] = defaultdict(dict)
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._label_numbers: dict[str, dict[str, float]] = defaultdict(dict)
        self._unlabelled: set[str] = set()
        self._left = _MAX_SAMPLED_BYTES
        self._max_previews = 0

    def sample_shard(self, shard: int, ids: Int64) -> bool:
        """Read samples of one shard; return False once the limit of bytes is reached."""
        self._max_previews = min(self._max_previews + self._share, MAX_PREVIEWS)
        row = self._values.row_bytes(shard)
        encodings = {c.name: c.encoding for c in self._index.schema(shard).columns}
        before = self.count
        try:
            for part in np.array_split(
                ids, min(-(-len(ids) * row // _BYTES_PER_READ) or 1, len(ids))
            ):
                if self._left <= 0:
                    self.failures.append("Samples are large: fewer were looked at.")
                    return False
                for sample, values in zip(part.tolist(), self._values.read(part)):
                    self._take(sample, values, encodings)
                self._left -= len(part) * row
        except StreamplugError as error:
            self.failures.append(f"{error}")
        finally:
            self.shards += self.count > before
        return True

    def _take(
        self, sample: int, values: Mapping[str, Any], encodings: Mapping[str, Encoding]
    ) -> None:
        shown = {
            name: self._seen(sample, name, value, encodings[name]) for name, value in values.items()
        }
        self.count += 1
        if not self._values.decode_values:
            self.bytes.append(sum(len(value) for value in values.values() if value is not None))
        if sample in self._preview_ids:
            self.sample_previews[sample] = shown

    def _seen(self, sample: int, name: str, value: Any, encoding: Encoding) -> Preview:
        previews = self._previews[name]
        keep = len(previews) < self._max_previews
        draw = keep or sample in self._preview_ids
        if value is None or (self._values.decode_values and (self._unsafe or not encoding.unsafe)):
            seen = preview_value(value, draw=draw)
        else:
            self._sizes[name].append(len(value))
            seen = preview(encoding, value, draw=draw, allow_unsafe_types=self._unsafe)
        shown = bool(seen.text or seen.images or seen.measure)
        if seen.measure:
            self._numbers[name, seen.measure].append(seen.number)
        counts = self._counts[name]
        if seen.measure not in ("characters", "value") or len(seen.text) > _MAX_LABEL_CHARS:
            self._unlabelled.add(name)
        elif len(counts) <= _MAX_COUNTED_VALUES:
            counts[seen.text] += 1
            number = self._label_numbers[name].setdefault(seen.text, seen.number)
            if number != seen.number and not math.isnan(number):
                self._unlabelled.add(name)  # different numbers look alike in few digits
        if keep and shown:
            previews.append((sample, seen))
        notes = self._notes[name]
        if not shown and (seen.note in notes or len(notes) < MAX_PREVIEWS):
            notes[seen.note] = notes.get(seen.note, 0) + 1
        return seen

    def column(self, name: str) -> ColumnStatistics:
        """Return the statistics of a column."""
        columns = [schema.column(name) for schema in self._index.schemas]
        specs = tuple(dict.fromkeys(column.spec for column in columns if column is not None))
        measures = {of: n for (column, of), n in self._numbers.items() if column == name}
        measure = max(measures, key=lambda of: len(measures[of]), default="")
        return ColumnStatistics(
            name,
            specs,
            make_histogram(self._sizes[name]),
            measure,
            make_histogram(measures[measure]) if measure else None,
            self._previews[name],
            self._notes[name],
            self._few_counts(name),
        )

    def _few_counts(self, name: str) -> dict[str, int]:
        counts = self._counts[name]
        few = len(counts) <= _MAX_COUNTED_VALUES and counts.total() >= 2 * len(counts)
        return dict(counts.most_common()) if few and name not in self._unlabelled else {}
