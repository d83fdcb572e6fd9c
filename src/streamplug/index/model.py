"""The index of a data set: its shards, held in columns rather than as an object per shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.errors import InvalidIndexError
from streamplug.index.basename import safe_basename
from streamplug.index.columns import Lookup, Same
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
        known_total: Bytes of all of them, where that was worked out before.
    """

    basenames: Lookup[str]
    bytes: NDArray[Any]
    hashes: Lookup[Mapping[str, str]]
    known_total: int | None = None

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return int(self.bytes.sum()) if self.known_total is None else self.known_total

    def file(self, shard: int, what: str) -> FileInfo | None:
        """Return one shard's file, or None if it has none of this kind.

        Raises:
            InvalidIndexError: If its name leads out of the data set; `what` says whose it is.
        """
        name = self.basenames[shard]
        if not name:
            return None
        return FileInfo(safe_basename(name, what), int(self.bytes[shard]), self.hashes[shard])


class Index:
    """The shards of one data set.

    Attributes:
        starts: First sample id of each shard and the total, int64, shape ``[shards + 1]``. Like all
            columns it may be mapped from a file.
        schemas: The distinct schemas.
        schema_of: Which schema each shard has: an array of shape ``[shards]``, or `Same`.
        tables: Files by ``raw_<role>`` and ``zip_<role>``; the latter may be missing.
        where: What errors call the index.
    """

    def __init__(
        self,
        starts: Int64,
        schemas: Sequence[Schema],
        schema_of: NDArray[Any] | Same,
        tables: Mapping[str, FileTable],
        *,
        where: str = "the index",
        digest: str | None = None,
    ) -> None:
        """Hold the columns; `digest` is that of `starts`, where it is known already."""
        self.starts = starts
        self.schemas = tuple(schemas)
        self.schema_of = schema_of
        self.tables = tables
        self.where = where
        if digest is not None:
            self.digest = digest

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
        """Return the schema of a shard.

        Raises:
            InvalidIndexError: If there is no such schema.
        """
        number = int(self.schema_of[shard])
        if not 0 <= number < len(self.schemas):
            raise InvalidIndexError(f"{self.where}: shard {shard}: it has no schema {number}")
        return self.schemas[number]

    def shard(self, shard: int) -> ShardInfo:
        """Return what is known of a shard.

        Raises:
            InvalidIndexError: If that cannot be true; a mapped index was not looked through before.
        """
        schema = self.schema(shard)
        start, stop = self.starts[shard : shard + 2].tolist()
        files = {}
        try:
            for role in schema.format.roles:
                raw = self._file(f"raw_{role}", shard)
                if raw is not None:
                    schema.format.check(stop - start, role, raw.bytes)
                    files[role] = ShardFile(raw, self._file(f"zip_{role}", shard))
            if not files:
                raise InvalidIndexError("it has no files")
        except InvalidIndexError as error:
            raise InvalidIndexError(f"{self.where}: shard {shard}: {error}") from None
        return ShardInfo(shard, stop - start, files)

    def _file(self, key: str, shard: int) -> FileInfo | None:
        table = self.tables.get(key)
        return None if table is None else table.file(shard, key)


def starts_of(samples: Int64) -> Int64:
    """Return the first sample id of each shard, and the total, from the sizes of the shards."""
    starts = np.zeros(len(samples) + 1, np.int64)
    np.cumsum(samples, out=starts[1:])
    return starts


def shards_digest(starts: Int64) -> str:
    """Return the digest of the shards' sizes, given as for `Index`."""
    return xxhash.xxh64(np.ascontiguousarray(starts, "<i8").data).hexdigest()
