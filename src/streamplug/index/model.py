"""The index of a data set: its shards, held in columns rather than as an object per shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.index.columns import Lookup
from streamplug.interfaces import Column, Decoder, Format, ShardFile, ShardInfo
from streamplug.types import FileInfo, Int64


@dataclass(frozen=True, slots=True)
class Schema:
    """What many shards have in common.

    Attributes:
        format: Reads and writes them.
        columns: Their columns, in stored order.
        compression: Spec of the compression of their stored files, or None.
        entry: The keys of an index.json's entry that it was made from.
        decoders: Those that `columns` are decoded by in place of what the entry says, by column.
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
        """What is known of the memory that a decoded sample takes."""
        return sum(column.encoding.decoded_bytes or 0 for column in self.columns)


@dataclass(frozen=True)
class FileTable:
    """One kind of file (raw or stored, of one role) of all shards, column by column.

    Attributes:
        basenames: Their names; an empty one where a shard has no such file.
        bytes: Their sizes, shape ``[shards]``.
        hashes: Their digests by name of the algorithm.
    """

    basenames: Lookup[str]
    bytes: NDArray[Any]
    hashes: Lookup[Mapping[str, str]]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return int(self.bytes.sum())

    def file(self, shard: int) -> FileInfo | None:
        """Return one shard's file, or None if it has none of this kind."""
        name = self.basenames[shard]
        if not name:
            return None
        return FileInfo(name, int(self.bytes[shard]), self.hashes[shard])


class Index:
    """The shards of one data set.

    Attributes:
        starts: First sample id of each shard and the total, int64, shape ``[shards + 1]``.
        schemas: The distinct schemas.
        schema_of: Which schema each shard has: shape ``[shards]``.
        tables: Files by ``raw_<role>`` and ``zip_<role>``; the latter may be missing.
        where: What errors call the index.
    """

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
        """Digest of the shards' sizes: data sets that differ in it differ in their order."""
        return shards_digest(self.starts)

    @property
    def samples(self) -> Int64:
        """Samples of each shard, int64, shape ``[shards]``; worked out at each call."""
        return np.diff(self.starts)

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.starts[-1])

    @property
    def raw_bytes(self) -> int:
        """Bytes of all raw files."""
        return sum(table.total for key, table in self.tables.items() if key.startswith("raw_"))

    @property
    def compressed(self) -> bool:
        """Whether any shard is stored compressed."""
        return any(schema.compression is not None for schema in self.schemas)

    def schema(self, shard: int) -> Schema:
        """Return the schema of a shard."""
        return self.schemas[int(self.schema_of[shard])]

    def shard(self, shard: int) -> ShardInfo:
        """Return what is known of a shard."""
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
    """Return the digest of the shards' sizes, given as for `Index`."""
    return xxhash.xxh64(np.ascontiguousarray(starts, "<i8").data).hexdigest()
