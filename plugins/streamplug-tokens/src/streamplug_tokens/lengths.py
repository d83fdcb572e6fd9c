"""Lengths of the documents of a stream, from shard headers where these have them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from streamplug_files import ProgressBar
from streamplug_ranges import ValueSizes
from xxhash import xxh64

from streamplug.errors import ConfigError, CorruptShardError, DataError
from streamplug.index import Schema, offsets_from_sizes
from streamplug.interfaces import Column, VectorColumn
from streamplug.source import OpenStream
from streamplug.transfer import map_threads
from streamplug.types import Int64
from streamplug_tokens.document_offsets import DocumentOffsets, EqualLengths, ListedOffsets
from streamplug_tokens.length_cache import ArrayCache
from streamplug_tokens.length_column import read_length_column
from streamplug_tokens.number_lists import NumberLists
from streamplug_tokens.shared_counts import SharedCounts, connect_store

MAX_HEADERS_IN_FLIGHT = 32
"""Shard headers that are read at the same time."""
MAX_SHARDS_IN_FLIGHT = 4
"""Shards that are decoded at the same time."""
ROWS_PER_READ = 1024
_LOG = logging.getLogger("streamplug_tokens")


def all_documents(stream: OpenStream) -> OpenStream:
    """Return a stream of all documents, whose shards are read alike: as a whole, or by ranges."""
    return replace(stream, selection=None)


def _column(stream: OpenStream, schema: Schema, name: str) -> Column:
    column = schema.column(name)
    if column is None:
        raise ConfigError(f"{stream.where} has no column {name!r}")
    return column


def read_document_offsets(
    stream: OpenStream,
    cache: ArrayCache,
    name: str,
    dtype: np.dtype[Any],
    *,
    extra: int,
    length_column: str | None = None,
) -> DocumentOffsets:
    """Return the offsets of the documents of a stream.

    Args:
        stream: The stream.
        cache: Where lengths are kept.
        name: Name of the column of tokens.
        dtype: Of the tokens.
        extra: Tokens that are added to each document.
        length_column: Name of the column of lengths, if there is one.

    Raises:
        StreamplugError: If the shards cannot be fetched, or are damaged.
    """
    fixed = {_fixed_length(schema, name, dtype) for schema in stream.index.schemas}
    if len(fixed) == 1 and None not in fixed:
        selection = stream.selection
        count = stream.index.size if selection is None else len(selection)
        return EqualLengths(int(fixed.pop() or 0) + extra, count)
    key = f"offsets of {name!r} as {dtype.str}{decoder_key(stream, name, dtype)}"
    if stream.selection is not None:
        key = f"{key} of {stream.selection.digest}"
    if length_column is not None:
        key = f"{key} by {length_column!r}"

    def compute() -> Int64:
        if length_column is None:
            counts = SharedCounts(connect_store(), cache.path(key).name)
            return DocumentCounter(stream, name, dtype, counts).offsets()
        return _selected_offsets(stream, read_length_column(stream, length_column))

    offsets = cache.array(key, compute)
    if extra:
        extended = lambda: offsets + extra * np.arange(len(offsets))  # noqa: E731
        offsets = cache.array(f"{key} plus {extra}", extended)
    return ListedOffsets(offsets)


def _selected_offsets(stream: OpenStream, lengths: Int64) -> Int64:
    """Return the offset of each selected document and the total, from the lengths of all documents."""
    selection = stream.selection
    if selection is not None:
        lengths = lengths[selection.rows(np.arange(len(selection)))]
    return offsets_from_sizes(lengths)


def decoder_key(stream: OpenStream, name: str, dtype: np.dtype[Any]) -> str:
    """Return text that differs for decoders that give documents other lengths; empty without a decoder."""
    if (stream.stream.decoders or {}).get(name) is None:
        return ""
    sizes = np.arange(1 << 12)
    sizes = np.concatenate([sizes, sizes << 12])
    digest = xxh64()
    for schema in stream.index.schemas:
        lengths = _vectors(_column(stream, schema, name)).lengths(sizes, dtype)
        digest.update(np.ascontiguousarray(lengths, "<i8").data)
    return f" decoded {digest.hexdigest()}"


def _fixed_length(schema: Schema, name: str, dtype: np.dtype[Any]) -> int | None:
    column = schema.column(name)
    if column is None or column.encoding.size is None:
        return None
    if isinstance(column.encoding, NumberLists):
        return column.encoding.length
    length = int(_vectors(column).lengths(np.array([column.encoding.size]), dtype)[0])
    if length < 0:
        raise ConfigError(f"column {name!r}, {column.spec!r}: tokens are one-dimensional arrays")
    return length


def _vectors(column: Column) -> VectorColumn:
    if not isinstance(column.encoding, VectorColumn):
        raise ConfigError(f"column {column.name!r}, {column.spec!r}, has no tokens")
    return column.encoding


class DocumentCounter:
    """Counts the tokens of documents, shard by shard."""

    def __init__(
        self, stream: OpenStream, name: str, dtype: np.dtype[Any], counts: SharedCounts
    ) -> None:
        """Count the documents in a column of a stream, and those of whole shards by `counts`."""
        self._stream, self._name, self._dtype = stream, name, dtype
        self._counts = counts
        self._shards = all_documents(stream).shards([name])
        self._sizes = ValueSizes(stream, name)

    def offsets(self) -> Int64:
        """Return the offset of each selected document and the total, shape ``[documents + 1]``."""
        index, selection = self._stream.index, self._stream.selection
        shards: Sequence[int] = range(len(index))
        if selection is not None:
            shards = np.flatnonzero(np.diff(selection.ranks(index.starts))).tolist()
        _LOG.info("%s: counting the tokens of %d shards", self._stream.where, len(shards))
        offsets = np.zeros(index.size + 1, np.int64)
        starts = index.starts.tolist()
        lengths = [offsets[start + 1 : stop + 1] for start, stop in pairwise(starts)]
        counted = map_threads(
            lambda shard: self._count_header(shard, lengths[shard]), shards, MAX_HEADERS_IN_FLIGHT
        )
        without_sizes = [shard for shard, is_counted in zip(shards, counted) if not is_counted]
        if without_sizes:
            for shard, counts in self._read_shards(without_sizes):
                lengths[shard][:] = counts
        return _selected_offsets(self._stream, offsets[1:])

    def _count_header(self, shard: int, lengths: Int64) -> bool:
        """Fill in lengths from the header of a shard; return False if its header has no sizes."""
        if not len(lengths):
            return True
        schema = self._stream.index.schema(shard)
        column = _column(self._stream, schema, self._name)
        if not isinstance(column.encoding, VectorColumn):
            return False
        sizes = self._sizes.of(shard)
        if sizes is None:
            return False
        lengths[:] = _vectors(column).lengths(sizes, self._dtype)
        if (lengths < 0).any():
            row = int((lengths < 0).argmax())
            raise CorruptShardError(
                f"{self._stream.where}: shard {shard}: sample {row}, column {self._name!r}: a value of "
                f"{sizes[row]} bytes is no array of {self._dtype.name} tokens"
            )
        return True

    def _read_shards(self, shards: Sequence[int]) -> Iterator[tuple[int, Int64]]:
        """Yield shards, and the lengths of their documents, by reading them."""
        stream = self._stream
        # In place, it takes little time, and there may be many data sets.
        _LOG.log(
            logging.WARNING if stream.downloads else logging.INFO,
            "%s: reading %d shards to count the tokens of documents, as nothing else has their lengths; to "
            "avoid this, write the data set again with streamplug convert, or name a column of lengths with "
            "lengths=",
            stream.where,
            len(shards),
        )
        # Within a cache limit, several shards would evict one another.
        in_flight = 1 if stream.stream.cache_limit is not None else MAX_SHARDS_IN_FLIGHT
        with ProgressBar(f"counting tokens of {stream.where}") as progress:
            for done, counted in enumerate(self._counts.count(shards, self._count, in_flight)):
                yield counted
                progress.update(done + 1, len(shards))

    def _count(self, shard: int) -> Int64:
        """Return the lengths of all documents of a shard, by decoding them."""
        column = _column(self._stream, self._stream.index.schema(shard), self._name)
        opened = self._shards.get(shard)
        lengths = np.empty(self._stream.index.shard(shard).samples, np.int64)
        for start in range(0, len(lengths), ROWS_PER_READ):
            rows = np.arange(start, min(start + ROWS_PER_READ, len(lengths)))
            try:
                (values,) = opened.reader.take(rows, [column])
                lengths[rows] = self._lengths(rows, column.encoding.unbatch(values))
            except DataError as error:
                raise opened.located(error) from error
        return lengths

    def _lengths(self, rows: Int64, values: Sequence[Any]) -> list[int]:
        lengths: list[int] = []
        for row, value in zip(rows.tolist(), values):
            try:
                lengths.append(len(as_tokens(value, self._dtype)))
            except DataError as error:
                raise DataError(f"sample {row}, column {self._name!r}: {error}") from None
        return lengths


def as_tokens(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return a decoded value as an array of tokens.

    Raises:
        DataError: If it is not one.
    """
    if isinstance(value, (bytes, memoryview)) and len(value) % dtype.itemsize == 0:
        return np.frombuffer(value, dtype)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == dtype:
        return value
    what = "no value"  # an archive may lack one
    if value is not None:
        is_bytes = isinstance(value, (bytes, memoryview))
        what = f"{len(value)} bytes" if is_bytes else f"{value.dtype} {value.shape}"
    raise DataError(f"{what} where a one-dimensional array of {dtype.name} tokens was expected")
