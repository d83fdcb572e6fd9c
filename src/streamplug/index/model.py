"""The index of a data set: its shards, held in columns rather than as an object per shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamplug.interfaces import Column, Format, ShardFile, ShardInfo
from streamplug.types import FileInfo, Int64


@dataclass(frozen=True, slots=True)
class Schema:
    """What many shards have in common.

    Attributes:
        format: Reads and writes them.
        columns: Their columns, in stored order.
        compression: Spec of the compression of their stored files, or None.
    """

    format: Format
    columns: tuple[Column, ...]
    compression: str | None

    def column(self, name: str) -> Column | None:
        """Return a column by name, or None."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class FileTable:
    """One kind of file (raw or stored, of one role) of all shards, column by column."""

    basenames: Sequence[str]
    bytes: Int64
    hashes: Sequence[Mapping[str, str]]

    def file(self, shard: int) -> FileInfo | None:
        """Return one shard's file, or None if it has none of this kind."""
        if not self.basenames[shard]:
            return None
        return FileInfo(self.basenames[shard], int(self.bytes[shard]), self.hashes[shard])


class Index:
    """The shards of one data set.

    Attributes:
        samples: Samples of each shard, int64, shape ``[shards]``.
        starts: First sample id of each shard and the total, int64, shape ``[shards + 1]``.
        schemas: The distinct schemas.
        schema_of: Which schema each shard has, int32, shape ``[shards]``.
    """

    def __init__(
        self,
        samples: Int64,
        schemas: Sequence[Schema],
        schema_of: Int64,
        tables: Mapping[str, FileTable],
    ) -> None:
        """Hold the columns; `tables` is keyed by ``raw_<role>`` and ``zip_<role>``."""
        self.samples = samples
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(samples)])
        self.schemas = tuple(schemas)
        self.schema_of = schema_of
        self._tables = tables

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def size(self) -> int:
        """Number of samples."""
        return int(self.starts[-1])

    @property
    def raw_bytes(self) -> int:
        """Bytes of all raw files."""
        return sum(int(t.bytes.sum()) for key, t in self._tables.items() if key.startswith("raw_"))

    @property
    def compressed(self) -> bool:
        """Whether any shard is stored compressed."""
        return any(schema.compression is not None for schema in self.schemas)

    def schema(self, shard: int) -> Schema:
        """Return the schema of a shard."""
        return self.schemas[int(self.schema_of[shard])]

    def shard(self, shard: int) -> ShardInfo:
        """Return what is known of a shard."""
        files = {}
        for role in self.schema(shard).format.roles:
            raw = self._tables[f"raw_{role}"].file(shard)
            if raw is not None:
                files[role] = ShardFile(raw, self._tables[f"zip_{role}"].file(shard))
        return ShardInfo(shard, int(self.samples[shard]), files)
