"""Index of a data set: its shards, stored in columns rather than as an object per shard."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.interfaces import Column, Decoder, Format, ShardFile, ShardInfo
from streamplug.types import Bytes1D, FileInfo, Int64

T_co = TypeVar("T_co", covariant=True)


class Lookup(Protocol[T_co]):
    """Lookup of a value by shard."""

    def __getitem__(self, shard: int, /) -> T_co:
        """Return the value of a shard."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A string for each shard, empty if missing: concatenated UTF-8 with offsets, shape ``[shards + 1]``."""

    offsets: Int64
    data: Bytes1D

    def __getitem__(self, shard: int) -> str:
        start, stop = self.offsets[shard : shard + 2].tolist()
        return self.data[start:stop].tobytes().decode(errors="replace")

    def texts(self) -> list[bytes]:
        """Return the strings of all shards."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        return [data[start:stop] for start, stop in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class DigestColumns:
    """Digests of files by algorithm; a missing digest is an empty string."""

    columns: Mapping[str, TextColumn]

    def __getitem__(self, shard: int) -> Mapping[str, str]:
        digests = {name: column[shard] for name, column in self.columns.items()}
        return {name: digest for name, digest in digests.items() if digest}


class NumberColumnBuilder:
    """Builder of an int64 column."""

    def __init__(self) -> None:
        self._values = array("q")

    def put(self, start: int, values: Sequence[int]) -> None:
        """Append values from shard `start` on; earlier shards without a value get 0."""
        missing = start - len(self._values)
        self._values.frombytes(bytes(missing * self._values.itemsize))
        self._values.extend(values)

    def build(self, count: int) -> Int64:
        """Return the column of `count` shards."""
        self.put(count, ())
        return np.array(self._values, np.int64)


class TextColumnBuilder:
    """Builder of a column of strings."""

    def __init__(self) -> None:
        self._lengths = NumberColumnBuilder()
        self._data = bytearray()

    def put(self, start: int, values: Sequence[bytes]) -> None:
        """Append strings from shard `start` on; earlier shards without one get an empty string."""
        self._lengths.put(start, list(map(len, values)))
        self._data += b"".join(values)

    def build(self, count: int) -> TextColumn:
        """Return the column of `count` shards."""
        return TextColumn(
            offsets_from_sizes(self._lengths.build(count)), np.frombuffer(self._data, np.uint8)
        )


def offsets_from_sizes(sizes: Int64) -> Int64:
    """Return the offsets of items and their total size, shape ``[n + 1]``, from sizes, shape ``[n]``."""
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


@dataclass(frozen=True, slots=True)
class Schema:
    """Properties that many shards share.

    Attributes:
        columns: In stored order.
        compression: Spec of the compression of stored files, or None.
        entry: Keys of the index.json entry that the schema was made from.
        decoders: Decoders by column that replace those of the entry.
    """

    format: Format
    columns: tuple[Column, ...]
    compression: str | None
    entry: Mapping[str, Any] = field(default_factory=dict)
    decoders: Mapping[str, Decoder] = field(default_factory=dict)

    def column(self, name: str) -> Column | None:
        """Return a column by name, or None."""
        return next((column for column in self.columns if column.name == name), None)

    @property
    def decoded_bytes(self) -> int:
        """Size in memory of a decoded sample, as far as it is known."""
        return sum(column.encoding.decoded_bytes or 0 for column in self.columns)


@dataclass(frozen=True)
class FileTable:
    """Files of one kind (raw or stored, of one role) of all shards; a missing file has an empty name."""

    basenames: Lookup[str]
    bytes: NDArray[Any]
    hashes: Lookup[Mapping[str, str]]

    def stored_bytes(self, compressed: FileTable | None) -> NDArray[Any]:
        """Return the bytes of each file as it is stored, given the compressed ones of raw files."""
        if compressed is None:
            return self.bytes
        return np.where(compressed.bytes, compressed.bytes, self.bytes)

    def file(self, shard: int) -> FileInfo | None:
        """Return the file of a shard, or None."""
        name = self.basenames[shard]
        if not name:
            return None
        return FileInfo(name, int(self.bytes[shard]), self.hashes[shard])


class Index:
    """Shards of one data set.

    Attributes:
        starts: First sample id of each shard and the total, int64, shape ``[shards + 1]``.
        schema_of: Index into `schemas` of each shard, shape ``[shards]``.
        tables: Files by ``raw_<role>`` and ``zip_<role>``; the latter may be missing.
        where: Name of the index in errors.
        statistics: Statistics of columns by shard, for `streamplug_views.pruning`; None if not known.
        value_sizes: Files with sizes of values, see `unpack_value_sizes`.
        versions: Digest of the names, sizes and versions of the files, if they were scanned; empty if not
            known while offline, else None.
    """

    statistics: Any = None
    value_sizes: Sequence[FileInfo] = ()
    versions: str | None = None

    def __init__(
        self,
        starts: Int64,
        schemas: Sequence[Schema],
        schema_of: NDArray[Any],
        tables: Mapping[str, FileTable],
        *,
        where: str = "the index",
    ) -> None:
        self.starts = starts
        self.schemas = tuple(schemas)
        self.schema_of = schema_of
        self.tables = tables
        self.where = where

    def __len__(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def digest(self) -> str:
        """Digest of the shard sizes; data sets with other digests have other orders."""
        return shards_digest(self.starts)

    @property
    def samples(self) -> Int64:
        """Samples of each shard, int64, shape ``[shards]``; computed at each access."""
        return np.diff(self.starts)

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.starts[-1])

    @property
    def file_tables(self) -> list[tuple[FileTable, FileTable | None]]:
        """Raw files of each role, and the compressed ones; None if no shard has any."""
        raw = {key[4:]: table for key, table in self.tables.items() if key.startswith("raw_")}
        return [(table, self.tables.get(f"zip_{role}")) for role, table in raw.items()]

    @property
    def raw_bytes(self) -> int:
        """Bytes of all raw files."""
        return int(self.raw_shard_bytes.sum())

    @property
    def raw_shard_bytes(self) -> Int64:
        """Bytes of the raw files of each shard, shape ``[shards]``; computed at each access."""
        return self._sum_over_roles([raw.bytes for raw, _ in self.file_tables])

    @property
    def stored_shard_bytes(self) -> Int64:
        """Bytes of the files of each shard as they are stored, compressed or not, shape ``[shards]``."""
        return self._sum_over_roles([raw.stored_bytes(zipped) for raw, zipped in self.file_tables])

    def _sum_over_roles(self, sizes: Sequence[NDArray[Any]]) -> Int64:
        total: Int64 = np.zeros(len(self), np.int64)
        for of_role in sizes:
            total += of_role.astype(np.int64)
        return total

    @property
    def compressed(self) -> bool:
        """Whether any shard is stored compressed."""
        return any(schema.compression is not None for schema in self.schemas)

    def schema(self, shard: int) -> Schema:
        """Return the schema of a shard."""
        return self.schemas[int(self.schema_of[shard])]

    def shard(self, shard: int) -> ShardInfo:
        """Return the number of samples and the files of a shard."""
        start, stop = self.starts[shard : shard + 2].tolist()
        files = {}
        for role in self.schema(shard).format.roles:
            raw = self._file(f"raw_{role}", shard)
            if raw is not None:
                files[role] = ShardFile(raw, self._file(f"zip_{role}", shard))
        return ShardInfo(shard, stop - start, files)

    def _file(self, key: str, shard: int) -> FileInfo | None:
        table = self.tables.get(key)
        return None if table is None else table.file(shard)


def shards_digest(starts: Int64) -> str:
    """Return the digest of the shard sizes; `starts` is that of `Index`."""
    return xxhash.xxh64(np.ascontiguousarray(starts, "<i8").data).hexdigest()
