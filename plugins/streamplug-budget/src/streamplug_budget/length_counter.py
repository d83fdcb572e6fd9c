"""Lengths of the samples of a stream: from shard headers, else by reading the column, once for a cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from streamplug_ranges import RangeReader, RangeShards, ValueSizes
from streamplug_tokens.length_cache import ArrayCache

from streamplug.config import check_names
from streamplug.errors import ConfigError, CorruptShardError, DataError, UnsafeTypeError
from streamplug.interfaces import VectorColumn, bypasses
from streamplug.read import Reader
from streamplug.source import OpenSources, OpenStream
from streamplug.transfer import map_threads
from streamplug.types import Int64
from streamplug_budget.budget import BatchBudget
from streamplug_budget.processes import map_processes
from streamplug_budget.sample_lengths import (
    Lengths,
    StreamLengths,
    pack_lengths,
    summarize_lengths,
    unpack_lengths,
)

MAX_HEADERS_IN_FLIGHT = 32
SAMPLES_PER_READ = 1024
SAMPLES_PER_PROCESS = 1 << 15
"""Samples to read from which on another process is worth its start."""
MAX_LENGTH = (1 << 32) - 1
_HINTS = {
    "length": "; a column of whole numbers needs measure='value'",
    "value": "; the length of each value is measure='length'",
}

_LOG = logging.getLogger("streamplug_budget")


def read_lengths(stream: OpenStream, budget: BatchBudget) -> StreamLengths:
    """Return the lengths of the samples of a stream.

    Raises:
        StreamplugError: If the column does not exist, has no such lengths, or cannot be read.
    """
    for schema in stream.index.schemas:
        names = [column.name for column in schema.columns]
        columns = [] if budget.column is None else [budget.column]
        check_names(f"batch_budget: column={budget.column!r}", stream.where, columns, names)
    if budget.measure != "bytes" and not stream.allow_unsafe:
        _check_safe(stream, budget.column)
    size = stream.index.size if stream.selection is None else len(stream.selection)
    counter = LengthCounter(stream, budget.column, budget.measure, size)
    key = f"lengths of {budget.column!r} by {_measure_key(budget.measure)}"
    decoders = [
        (name, decoder)
        for name, decoder in sorted((stream.stream.decoders or {}).items())
        if budget.column in (None, name)  # those of other columns leave the lengths as they are
    ]
    if decoders and budget.measure != "bytes":
        from streamplug_budget.function_key import function_key  # imports cloudpickle

        key = f"{key} with {[(name, function_key(decoder)) for name, decoder in decoders]}"
    if stream.selection is not None:
        key = f"{key} of {stream.selection.digest}"
    cache = ArrayCache(stream)
    packed = cache.array(key, lambda: pack_lengths(counter.lengths()))
    summary = cache.array(
        f"{key}: summary", lambda: summarize_lengths(unpack_lengths(packed, size))
    )
    total, longest, digest = summary.tolist()
    return StreamLengths(packed, size, total, longest, f"{digest:016x}")


def _check_safe(stream: OpenStream, name: str | None) -> None:
    """Raise `UnsafeTypeError` if decoding a column, None for all, can run code."""
    for column in (column for schema in stream.index.schemas for column in schema.columns):
        if column.encoding.unsafe and name in (None, column.name):
            raise UnsafeTypeError(
                f"{stream.where}: batch_budget reads column {column.name!r}, which contains an unsafe type: "
                f"{column.spec!r} can run code from the data; pass allow_unsafe_types=True if you trust its "
                "writer, or name another column= of the budget"
            )


def _measure_key(measure: str | Callable[[Any], int]) -> str:
    if isinstance(measure, str):
        return measure
    from streamplug_budget.function_key import function_key

    return function_key(measure)


@dataclass(frozen=True)
class LengthCounter:
    """Measures the samples of a stream; see `BatchBudget` for `column` and `measure`."""

    stream: OpenStream
    column: str | None
    measure: str | Callable[[Any], int]
    size: int

    def lengths(self) -> Lengths:
        """Return the length of each sample, shape ``[size]``."""
        if self.column is not None and self.measure in ("length", "bytes"):
            lengths = self._from_headers(self.column)
            if lengths is not None:
                return lengths
        if self.measure == "bytes":
            raise ConfigError(
                f"batch_budget: measure='bytes': {self.stream.where} does not store the sizes of column "
                f"{self.column!r} where they can be read without the values; give another measure="
            )
        _LOG.info("%s: reading %d samples for their lengths", self.stream.where, self.size)
        processes = max(min(os.cpu_count() or 1, self.size // SAMPLES_PER_PROCESS), 1)
        cuts = [self.size * number // processes for number in range(processes + 1)]
        parts = [range(*cut) for cut in pairwise(cuts)]
        return np.concatenate(
            [self.read(parts[0])] if processes == 1 else map_processes(self.read, parts)
        )

    def _from_headers(self, column: str) -> Lengths | None:
        """Return the lengths as shard headers have them; None if any of them has not."""
        try:
            stored = self.stream.stored(column)
        except ConfigError:  # a view of several data sets
            return None
        index, selection = stored.index, stored.selection
        starts, lengths = index.starts.tolist(), np.zeros(index.size, np.uint32)
        shards: Sequence[int] = range(len(index))
        if selection is not None:
            shards = np.flatnonzero(np.diff(selection.ranks(index.starts))).tolist()
        # A damaged header is reported by reading the shard; some shards can only be read as a whole.
        with suppress(_NoSizesError, ConfigError, CorruptShardError):
            for shard, sizes in zip(
                shards,
                map_threads(
                    partial(self._shard_lengths, stored, ValueSizes(stored, column), column),
                    shards,
                    MAX_HEADERS_IN_FLIGHT,
                ),
            ):
                lengths[starts[shard] : starts[shard + 1]] = np.minimum(sizes, MAX_LENGTH)
            if selection is not None:
                lengths = lengths[selection.rows(np.arange(self.size))]
            if self.measure == "bytes" or self._is_vector(stored, column, lengths):
                if self.size and lengths.max() == MAX_LENGTH:  # of this length, or cut off to it
                    reason = f"its length is {MAX_LENGTH} or more; leave it out by select="
                    raise self._error(int(lengths.argmax()), reason)
                return lengths
        return None

    def _is_vector(self, stored: OpenStream, column: str, lengths: Lengths) -> bool:
        """Return whether the value of the first sample, if it can be read, has the length by its header.

        Some arrays of more dimensions have the size of a vector.
        """
        if not self.size:
            return True
        rows = np.zeros(1, np.int64)
        if stored.selection is not None:
            rows = stored.selection.rows(rows)
        with suppress(ConfigError, DataError):
            ranges = RangeReader.of(stored.shard_files)
            shards = RangeShards(stored.index, ranges, [column])
            [sample] = Reader([stored.index.starts], [shards]).rows(rows)
            return bool(np.shape(sample[column]) == (lengths[0],))
        return True

    def _shard_lengths(
        self, stored: OpenStream, of_values: ValueSizes, name: str, shard: int
    ) -> Int64:
        column = stored.index.schema(shard).column(name)
        sizes = of_values.of(shard)
        if column is None or sizes is None:
            raise _NoSizesError
        if self.measure == "bytes":
            return sizes
        if not isinstance(column.encoding, VectorColumn) or column.encoding.item is None:
            raise _NoSizesError
        if bypasses(type(column.encoding), "lengths", "decode"):
            raise _NoSizesError
        lengths = column.encoding.lengths(sizes, column.encoding.item)
        if (lengths < 0).any():
            raise _NoSizesError
        return lengths

    def read(self, samples: range) -> Lengths:
        """Return the lengths of some samples by reading them."""
        columns = None if self.column is None else [self.column]
        reader = OpenSources([self.stream]).make_reader(columns)
        lengths = np.empty(len(samples), np.uint32)
        for start in range(0, len(samples), SAMPLES_PER_READ):
            part = samples[start : start + SAMPLES_PER_READ]
            rows = reader.rows(np.array(part, np.int64))
            for place, (sample, row) in enumerate(zip(part, rows), start):
                lengths[place] = self._measure(sample, row)
        return lengths

    def _measure(self, sample: int, row: dict[str, Any]) -> int:
        value = row if self.column is None else row[self.column]
        try:
            length: Any = value
            if callable(self.measure):
                length = self.measure(value)
            elif self.measure == "length":
                length = len(value)
            if 0 <= length <= MAX_LENGTH and length == int(length):
                return int(length)
        except Exception as error:
            raise self._error(sample, f"{type(error).__name__}: {error}") from error
        raise self._error(sample, f"{length!r:.60} is no whole number from 0 to {MAX_LENGTH}")

    def _error(self, sample: int, reason: str) -> DataError:
        name = self.measure if isinstance(self.measure, str) else "a function"
        hint = _HINTS.get(name, "")
        of_column = "" if self.column is None else f", column {self.column!r}"
        selection, named = self.stream.selection, f"sample {sample}"
        if selection is not None:  # as the location is that of all samples
            stored = int(selection.rows(np.array([sample]))[0])
            named = f"sample {stored} (number {sample} of the selected ones)"
        return DataError(
            f"{self.stream.where}: {named}{of_column}: batch_budget with measure={name}: "
            f"{reason}{hint}"
        )


class _NoSizesError(Exception):
    """A shard header does not have the sizes of the values."""
