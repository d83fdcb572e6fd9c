"""Access to the samples of data sets by number, without an epoch's plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import is_dataclass, replace
from functools import cached_property, partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import xxhash

from streamplug.config import check_names
from streamplug.errors import ConfigError, StorageError
from streamplug.index import Index
from streamplug.interfaces import Column
from streamplug.plugin import absolute_location, local_path
from streamplug.run import Block, Feed
from streamplug.source import OpenSources, OpenStream
from streamplug.stream import Stream
from streamplug.transfer import Observer, TemporaryDirectory
from streamplug.types import ColumnValues, Int64, World
from streamplug_tools.function_digest import digest_function
from streamplug_tools.raw_values import keep_raw
from streamplug_tools.selection_order import SelectionOrder

Batch = dict[str, ColumnValues]
Content: TypeAlias = "tuple[tuple[int, str], ...]"
"""Number of shards of each data set, and a digest of them."""

_MIN_CACHE_BYTES = 1 << 30
_MIN_CACHED_SHARDS = 32
"""Shards that always fit: those of several processes, and prefetched ones."""


ROWS_PER_STEP = 256
"""Rows that an expression is evaluated for before progress is counted, as it may take long."""


def batch_rows_of(batch: Batch, begin: int, end: int) -> Batch:
    """Return the rows ``[begin, end)`` of a batch as a batch."""
    return {name: values[begin:end] for name, values in batch.items()}


class Table:
    """The samples of data sets, concatenated.

    Attributes:
        size: Number of samples.
        columns: Columns by name, for each schema.
        rows: Number of samples per read.
        row_bytes: Average bytes per sample.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        columns: Sequence[str] | None = None,
        *,
        stored: Collection[str] = (),
        allow_unsafe_types: bool = False,
        needed: Callable[[str], bool] | None = None,
    ) -> None:
        """Open data sets.

        Args:
            streams: The data sets.
            columns: Names of the columns to read; None for all.
            stored: Names of columns to read as stored bytes.
            allow_unsafe_types: Whether to decode columns whose decoding can run code.
            needed: Returns whether all data sets must have a column; others are left out if only some have
                them. None for those in `columns`.

        Raises:
            StreamplugError: If one cannot be opened, or they do not all have the columns that are needed.
        """
        if not streams:
            raise ConfigError("no data set is given to read from")
        self._opened = OpenSources.open(_keep_raw(stream, stored) for stream in streams)
        needed = needed or (lambda name: columns is None or name in columns)
        self.columns = _columns(self._opened.indexes, needed)
        check_names("columns=", self._opened[0].where, columns or (), self.columns)
        names = [name for name in self.columns if columns is None or name in columns]
        for opened in self._opened:
            opened.check_columns(names, allow_unsafe=allow_unsafe_types, same=False)
        self._reader = self._opened.make_reader(names)
        self.size = int(self._reader.starts[-1])
        self._source = Feed.of(self._opened, self._reader, None)
        # Only for threads are blocks of values that are decoded on first use limited in bytes.
        self.rows = self._source.rows_of_batches(num_threads=1)
        self.row_bytes = self._source.row_bytes

    @property
    def indexes(self) -> list[Index]:
        """Index of each data set."""
        return self._opened.indexes

    @property
    def decoded_columns(self) -> set[str]:
        """Names of the columns that a stream decodes otherwise than they are stored."""
        names: set[str] = set()
        for opened in self._opened:
            decoders: Mapping[str, Any] = opened.stream.decoders or {}  # None has no effect
            names |= {name for name, decoder in decoders.items() if decoder is not None}
        return names

    @property
    def url(self) -> str:
        """URL of the first data set, or of its only file, see `OpenStream.shown_url`."""
        return self._opened[0].shown_url

    @property
    def folders(self) -> set[tuple[str, str]]:
        """Endpoints and URLs of the directories of the data sets, and of those that their shards lie in."""
        own = {(opened.stream.storage.endpoint, opened.stream.url) for opened in self._opened}
        return own.union(*(opened.folders for opened in self._opened))

    def take(self, ids: Int64) -> Batch:
        """Return samples as a batch.

        Raises:
            StreamplugError: If they cannot be read, or are damaged.
        """
        return self._reader.batch(ids)

    def place(self, sample_id: int) -> tuple[str, int]:
        """Return the URL of the file of a sample, and its row in it."""
        stream, _, name, row = self._reader.locate(sample_id)
        opened = self._opened[stream]
        if any(schema.format.is_composed for schema in opened.index.schemas):
            name = self._reader.describe(sample_id)  # where each sample is a file
        return opened.stream.storage.url_of(name), row

    def read(
        self, order: SelectionOrder, begin: int, end: int, rows: int | None = None
    ) -> Iterator[tuple[Int64, Batch]]:
        """Yield batches of samples and their numbers in an order; the next ones are prefetched.

        Args:
            order: Order of the samples.
            begin: First position in it.
            end: End position, exclusive.
            rows: Samples per batch; None for the default.

        Raises:
            StreamplugError: As for `take`.
        """
        rows = rows or self.rows
        blocks = (
            Block.of_batch(at, order.ids(at, min(at + rows, end))) for at in range(begin, end, rows)
        )
        parts = self._source.parts(
            blocks, lambda block: self.take(block.ids), World(), Observer(), num_threads=0
        )
        with closing(parts):
            for block, batch in parts:
                yield block.ids, batch

    @cached_property
    def identity(self) -> str:
        """Digest that differs for other samples: of indexes, versions of files, selected rows and decoders.

        Raises:
            StreamplugError: If files have no checksums, and their versions cannot be read.
        """
        digest = xxhash.xxh3_64()
        for opened in self._opened:
            url = _real_url(opened.stream.url).encode(errors="surrogateescape")
            digest.update(b"%b\n%b\n" % (url, opened.index.digest.encode()))
            digest.update(f"versions {opened.file_versions}\n".encode())
            if opened.rows_digest:
                digest.update(f"rows {opened.rows_digest}\n".encode())
            decoders: dict[str, Any] = dict(opened.stream.decoders or {})
            for name, decoder in sorted(decoders.items()):
                # `stored` of the job's columns says which are kept raw.
                if decoder is not None and decoder is not keep_raw:
                    digest.update(f"decoder {name} {_describe(decoder)}\n".encode())
            _add_files(digest, opened.index, len(opened.index))
        return digest.hexdigest()

    @cached_property
    def content(self) -> Content:
        """Which sample has which number."""
        return tuple((len(o.index), _digest_content(o, len(o.index))) for o in self._opened)

    def check_content(self, expected: Content) -> None:
        """Check that samples have the numbers that they had in another table of the same streams.

        Shards that were added after all others change no number.

        Args:
            expected: The `content` of that table; empty for no check.

        Raises:
            StorageError: If they have not, as files were added, replaced or removed since.
        """
        for opened, (shards, digest) in zip(self._opened, expected):
            is_last = opened is self._opened[-1]
            is_kept = len(opened.index) >= shards if is_last else len(opened.index) == shards
            if not is_kept or _digest_content(opened, shards) != digest:
                raise StorageError(
                    f"{opened.shown_url}: files were added, replaced or removed while the job ran, so "
                    "samples have other numbers now; start it again when nobody writes there"
                )


def _digest_content(opened: OpenStream, shards: int) -> str:
    """Return the digest of the files and the samples of the first shards, and of the selected rows."""
    digest = xxhash.xxh3_64(f"{opened.rows_digest}\n".encode())
    digest.update(np.ascontiguousarray(opened.index.starts[: shards + 1], "<i8").data)
    _add_files(digest, opened.index, shards)
    return digest.hexdigest()


def _add_files(digest: xxhash.xxh3_64, index: Index, shards: int) -> None:
    """Add the names, sizes and checksums of the files of the first shards to a digest."""
    for name, files in sorted(index.tables.items()):
        digest.update(f"{name}\n".encode())
        digest.update(np.ascontiguousarray(files.bytes[:shards], "<i8").data)
        for shard in range(shards):
            hashes = sorted(files.hashes[shard].items())
            digest.update(repr((files.basenames[shard], hashes)).encode())


def _real_url(url: str) -> str:
    """Return a URL, or the path that all names of a local directory lead to."""
    path = local_path(url)
    return url if path is None else os.path.realpath(path)


def _describe(function: Any) -> str:
    """Return the name of a decoder, and what tells it from others of that name."""
    if isinstance(function, partial):
        arguments = f"{function.args!r} {sorted(function.keywords.items())!r}"
        return f"{_describe(function.func)} {arguments}"
    options = f" {function!r}" if is_dataclass(function) else f" {digest_function(function)}"
    called = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{function.__module__}.{called}{options}"


def cache_locally(streams: Iterable[Stream], folder: Path, *, whole: bool) -> list[Stream]:
    """Return streams that cache shards in a folder, and never change their source.

    Args:
        streams: The streams; those with a cache or a cache limit keep it.
        folder: The folder.
        whole: Whether to cache all shards, since they are read in random order.
    """
    return [
        _cache_locally(stream, folder / str(n), whole=whole) for n, stream in enumerate(streams)
    ]


def move_caches(
    streams: Iterable[Stream], folder: Path
) -> tuple[list[Stream], list[TemporaryDirectory]]:
    """Return streams that cache in new temporary directories, not in `folder`, and those directories."""
    moved, directories = [], []
    for stream in streams:
        if stream.local is not None and Path(stream.local).is_relative_to(folder):
            directories.append(TemporaryDirectory())
            stream = replace(stream, local=str(directories[-1].path / "cache"))  # noqa: PLW2901 - it is moved
        moved.append(stream)
    return moved, directories


def absolute_streams(streams: Iterable[Stream]) -> list[Stream]:
    """Return streams whose paths are valid in any working directory."""
    return [
        replace(stream, remote=_absolute(stream.remote), local=_absolute(stream.local))
        for stream in streams
    ]


def _absolute(place: Any) -> Any:
    if isinstance(place, (str, PathLike)):
        return absolute_location(fspath(place))
    return place if place is None else [absolute_location(fspath(one)) for one in place]


def _cache_locally(stream: Stream, folder: Path, *, whole: bool) -> Stream:
    if stream.remote is not None and (stream.local is not None or stream.access == "range"):
        return stream
    where = stream.local if stream.remote is None else stream.remote
    limit = stream.cache_limit
    stream = replace(stream, remote=where, local=None, cache_limit=None)
    places = [where] if isinstance(where, str) else where or []
    if all(local_path(place) is not None for place in places):
        index = stream.open().index
        if not index.compressed:
            return stream
    stream = replace(stream, local=str(folder), cache_limit=limit)
    if whole or limit is not None:
        return stream
    index = stream.open().index
    sizes = sum(table.bytes.astype(np.int64) for table in index.tables.values())
    largest = int(np.max(sizes, initial=0))
    return replace(stream, cache_limit=max(_MIN_CACHE_BYTES, _MIN_CACHED_SHARDS * largest))


def _keep_raw(stream: Stream, names: Collection[str]) -> Stream:
    if not names:
        return stream
    return replace(stream, decoders={**(stream.decoders or {}), **dict.fromkeys(names, keep_raw)})


def _columns(
    indexes: Sequence[Index], needed: Callable[[str], bool]
) -> Mapping[str, tuple[Column, ...]]:
    """Return the common columns, for each schema."""
    schemas = [(index.where, schema) for index in indexes for schema in index.schemas]
    if not schemas:
        where = ", ".join(index.where for index in indexes)
        raise ConfigError(
            f"{where}: there are no shards, so nothing says which columns the data set has"
        )
    first, names = schemas[0][0], [column.name for column in schemas[0][1].columns]
    common = set(names)
    for where, schema in schemas[1:]:
        here = {column.name for column in schema.columns}
        if odd := sorted(filter(needed, here ^ set(names))):
            both = f"shards of {where}" if where == first else f"{first} and {where}"
            raise ConfigError(
                f"{both}: only some have the columns {odd}; all must have the same, so write those apart "
                "that differ, or leave columns out, as by selecting those that all have (--select)"
            )
        common &= here
    found: dict[str, list[Column]] = {name: [] for name in names if name in common}
    for _, schema in schemas:
        for column in schema.columns:
            if column.name in common:
                found[column.name].append(column)
    return {name: tuple(columns) for name, columns in found.items()}
