"""Snapshots of tables of Parquet files as streams: their manifest is the index, and no file is scanned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2s
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import xxhash
from streamplug_ranges import RangeFile, RowGroupFormat, RowGroupReader

from streamplug.errors import CorruptShardError, DataError, InvalidIndexError
from streamplug.index import (
    DigestColumns,
    FileTable,
    Index,
    Schema,
    TextColumnBuilder,
    offsets_from_sizes,
    validate_basename,
)
from streamplug.interfaces import (
    Column,
    Encoding,
    ShardInfo,
    ShardReader,
    Storage,
    public_url,
)
from streamplug.plugin import open_storage
from streamplug.source import OpenStream, StreamLocation
from streamplug.stream import Stream
from streamplug.transfer import Observer, TimeoutStorage
from streamplug.types import Bytes1D, Int64
from streamplug_parquet.encodings import ArrowTypes
from streamplug_parquet.file_bytes import FileBytes, RangedFile, WholeFile
from streamplug_parquet.table_columns import TableColumn
from streamplug_parquet.table_reader import TableFile, TableFileReader

_MAX_SAMPLES = 1 << 63

Bounds = Mapping[str, tuple[Any, Any, bool]]


class TableStatistics:
    """Bounds of columns by shard, which are read when they are first needed; None in other processes."""

    def __init__(self, read: Callable[[], Sequence[Bounds]], numbers: Sequence[int]) -> None:
        """Read bounds of files by `read`; `numbers` has the number of each shard's file."""
        self._read, self._numbers = read, numbers
        self._bounds: Sequence[Bounds] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _no_statistics, ()

    def bounds(self, shard: int) -> Bounds:
        """Return the bounds of those columns of a shard for which they are known."""
        if self._bounds is None:
            self._bounds = self._read()
        return self._bounds[self._numbers[shard]]


def _no_statistics() -> None:
    return None


@dataclass(frozen=True)
class TableSnapshot:
    """A table at one moment.

    Attributes:
        url: Location below which its files are.
        kind: What the table calls its moments, such as ``version``.
        number: Number of this one; None if there is none yet.
        columns: Columns in order.
        files: Data files in the order of samples.
        read_bounds: Returns, for each file, the bounds of columns as far as they are known: the lowest and
            the highest value, and whether values are missing.
    """

    url: str
    kind: str
    number: int | None
    columns: Sequence[TableColumn]
    files: Sequence[TableFile]
    read_bounds: Callable[[], Sequence[Bounds]]

    @property
    def version(self) -> str:
        """The moment in words, such as ``version 3``, which states record."""
        return f"{self.kind} {self.number}"

    @property
    def where(self) -> str:
        """Name of the snapshot in errors."""
        return f"{public_url(self.url)}, {self.version}"

    def index(self) -> Index:
        """Return the index, in which each file is a shard.

        Raises:
            DataError: If it has no columns, or a file is outside of the table.
            ConfigError: If the type of a column cannot be read.
        """
        if not self.columns:
            raise DataError(f"{self.where} has no columns")
        files = [file for file in self.files if file.samples]
        if sum(file.samples for file in files) >= _MAX_SAMPLES:
            raise DataError(f"{self.where} has more samples than can be counted")
        names = TextColumnBuilder()
        try:
            names.put(0, [validate_basename(file.key, "file").encode() for file in files])
        except InvalidIndexError as error:
            raise DataError(f"{self.where}: {error}") from None
        starts = offsets_from_sizes(np.array([file.samples for file in files], np.int64))
        sizes = np.array([file.size for file in files], np.int64)
        tables = {"raw_data": FileTable(names.build(len(files)), sizes, DigestColumns({}))}
        columns = tuple(column.as_column() for column in self.columns)
        schema = Schema(
            SnapshotFormat(self.columns, files),
            columns,
            None,
            {"format": "parquet", "columns": {column.name: column.spec for column in columns}},
        )
        schema_of = np.zeros(len(files), np.int64)
        index = Index(starts, [schema], schema_of, tables, where=self.where)
        index.digest = self._digest(files)
        numbers = [number for number, file in enumerate(self.files) if file.samples]
        index.statistics = TableStatistics(self.read_bounds, numbers)
        return index

    def _digest(self, files: Sequence[TableFile]) -> str:
        digest = xxhash.xxh3_64()
        for file in files:
            digest.update(f"{file.key}\0{file.rows}\0{len(file.deleted)}\n".encode())
            digest.update(np.ascontiguousarray(file.deleted, "<i8").data)
        return digest.hexdigest()


class SnapshotFormat(RowGroupFormat):
    """The Parquet files of one snapshot; their deleted rows and constant columns by number of the shard."""

    suffix = "parquet"
    encodings: ClassVar[Mapping[str, Encoding]] = ArrowTypes()

    def __init__(self, columns: Sequence[TableColumn], files: Sequence[TableFile]) -> None:
        """Read files with the columns of a table."""
        self._columns = columns
        self._deleted = {n: file.deleted for n, file in enumerate(files) if len(file.deleted)}
        # One array per column rather than a dict per file, as instances are sent to processes.
        used = {name for file in files for name in file.constants}
        self._constants = {
            column.name: pa.array([file.constants.get(column.name) for file in files], column.type)
            for column in columns
            if column.name in used
        }

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        return tuple(column.as_column() for column in self._columns)

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        return self._open(shard, WholeFile(files["data"]), columns)

    def open_row_groups(
        self, shard: ShardInfo, file: RangeFile, columns: Sequence[Column]
    ) -> RowGroupReader:
        return self._open(shard, RangedFile(file), columns)

    def _open(
        self, shard: ShardInfo, file: FileBytes, columns: Sequence[Column]
    ) -> TableFileReader:
        constants = {
            name: values[shard.number].as_py()
            for name, values in self._constants.items()
            if values[shard.number].is_valid
        }
        deleted = self._deleted.get(shard.number, _NONE_DELETED)
        reader = TableFileReader(file, columns, self._columns, deleted, constants)
        if len(reader) != shard.samples:
            raise CorruptShardError(
                f"it has {len(reader)} rows that are not deleted, the table says {shard.samples}"
            )
        return reader


_NONE_DELETED: Int64 = np.empty(0, np.int64)


@dataclass(frozen=True, repr=False)
class TableStream(Stream):
    """Stream of a snapshot, whose cache is a subdirectory that all snapshots of the table share."""

    snapshot: TableSnapshot = field(kw_only=True)

    @cached_property
    def location(self) -> StreamLocation:
        plain = super().location
        if plain.in_place:
            return plain
        identity = plain.storage.url.encode(errors="surrogateescape")
        return replace(plain, subdirectory=f"table-{blake2s(identity, digest_size=8).hexdigest()}")

    def find_index(self, storage: Storage, retries: int) -> tuple[Index, Path | None]:
        return self.snapshot.index(), None


def open_table_storage(stream: Stream, url: str) -> Storage:
    """Return the storage of a table that a stream names, with the stream's options."""
    storage = open_storage(url, stream.storage_options)
    return storage if stream.location.in_place else TimeoutStorage(storage, stream.timeout)


def open_table(stream: Stream, snapshot: TableSnapshot, observer: Observer | None) -> OpenStream:
    """Open a snapshot as a stream, with the options of the stream that named the table.

    Raises:
        DataError: If the snapshot is not valid.
        ConfigError: If the options do not fit it.
    """
    place = "local" if stream.remote is None else "remote"
    options = {field.name: getattr(stream, field.name) for field in fields(Stream)}
    if stream.location.in_place:  # then local= is the remote= of which the table is the split
        options["local"] = None
    options |= {place: snapshot.url, "split": None, "version": snapshot.number}
    plain = Stream(**options)
    options |= {"format": None, "version": None}
    opened = TableStream(**options, snapshot=snapshot).open(observer)
    # Without the snapshot, which would be sent to all processes.
    return replace(opened, stream=plain, where=snapshot.where, version=snapshot.version)
