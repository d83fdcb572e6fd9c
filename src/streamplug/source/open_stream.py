"""Streams whose index has been read."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streamplug.cache.store import ShardStore
from streamplug.config import check_names
from streamplug.errors import ConfigError, DataError, UnsafeTypeError, prefix_errors
from streamplug.index import INDEX_NAME, Index, check_same_columns
from streamplug.interfaces import RangeReadableFormat, Storage
from streamplug.plan import RowSelection
from streamplug.read import OpenShards, RangeShards, Reader, SampleReader
from streamplug.read.auto_shards import AutoShards
from streamplug.transfer.file_stat import file_versions
from streamplug.transfer.range_reader import RangeReader
from streamplug.transfer.timeout_storage import TimeoutStorage
from streamplug.types import Int64

if TYPE_CHECKING:
    from streamplug.stream import Stream


@dataclass(frozen=True)
class OpenStream:
    """A stream whose index has been read.

    `version` is that of a view or a table, in words. `allow_unsafe` is the data set's `allow_unsafe_types`,
    for what reads other columns than the data set.
    """

    stream: Stream
    index: Index
    store: ShardStore | RangeReader
    where: str
    selection: RowSelection | None = None
    version: str = ""
    allow_unsafe: bool = field(default=False, kw_only=True)

    has_shards: ClassVar[bool] = True
    """Whether `shards` reads the samples. A subclass without shards of its own overrides `make_reader`."""

    @property
    def downloads(self) -> bool:
        """Whether samples may have to be downloaded."""
        return self.store.fetches

    @property
    def rows_digest(self) -> str:
        """Identity of the rows that are read; empty for all of a data set without versions."""
        digest = "" if self.selection is None else self.selection.digest
        return f"{self.version} {self.index.digest} {digest}".strip() if self.version else digest

    @property
    def folders(self) -> set[str]:
        """URLs of the directories that its shards lie in, which may be those of other data sets."""
        storage, shards = self.stream.storage, range(len(self.index))
        names = (table.basenames[n] for table in self.index.tables.values() for n in shards)
        return {storage.url_of(name.rpartition("/")[0]) for name in names}

    @property
    def file_versions(self) -> str:
        """Digest of the versions of the files without checksums, as far as known; may ask the storage.

        Raises:
            Transient: If the storage cannot be reached.
        """
        index, stream = self.index, self.stream
        if self.version:  # the files of a version of a table do not change
            return ""
        if index.versions is not None:
            return index.versions
        names = _names_without_checksums(index)
        if not names:
            return ""
        storage = stream.storage
        if not stream.location.in_place:
            storage = TimeoutStorage(storage, stream.timeout)
        versions = file_versions(storage, names, stream.retries)
        return blake2b(json.dumps(versions).encode(), digest_size=16).hexdigest()

    def stored(self, column: str | None) -> OpenStream:  # noqa: ARG002 - views need it
        """Return the stream of the one data set that this selects rows of, for what reads stored shards.

        Args:
            column: The only column that will be read; None for all.

        Raises:
            ConfigError: If this is a view whose samples are not selected rows of one data set.
        """
        return self

    def make_reader(
        self, opened: Sequence[OpenStream], columns: Sequence[str] | None
    ) -> SampleReader:
        """Return a reader over all streams of a data set, without their selections.

        It is called of the first stream that has no shards; of the first one if all have.
        """
        return Reader([s.index.starts for s in opened], [s.shards(columns) for s in opened])

    def shards(self, columns: Sequence[str] | None) -> OpenShards | RangeShards | AutoShards:
        """Return a reader of these columns of the shards; None selects all columns."""
        if isinstance(self.store, RangeReader):
            return RangeShards(self.index, self.store, columns)
        shards = OpenShards(self.index, self.store, columns)
        if self.stream.access != "auto" or self.selection is None or not self.store.fetches:
            return shards
        try:
            ranges = RangeShards(self.index, self.ranges, columns)
        except ConfigError:  # the shards can only be read as a whole
            return shards
        rows = np.diff(self.selection.ranks(self.index.starts))
        return AutoShards(shards, ranges, self.store, self.index, rows)

    def header_sizes(self, shard: int, column: str) -> Int64 | None:
        """Return the stored bytes of each value of a column of a shard, from the header of the shard.

        Returns:
            Bytes of each value, shape ``[n]``; None if the header does not have them, or is compressed.

        Raises:
            StreamplugError: If the header cannot be fetched, or is damaged.
        """
        schema, info = self.index.schema(shard), self.index.shard(shard)
        format_, stored = schema.format, schema.column(column)
        if stored is None or not isinstance(format_, RangeReadableFormat) or schema.compression:
            return None
        span = format_.header_range(info)
        if span is None:
            return None
        file = info.files[format_.header_role].raw
        [header] = self.ranges.read(file, np.array([span], np.int64))
        with prefix_errors(f"{self.where}: shard {shard}", DataError):
            return format_.open_header(info, header, schema.columns).sizes(stored)

    @cached_property
    def ranges(self) -> RangeReader:
        """Reader of byte ranges of the stored files."""
        if isinstance(self.store, RangeReader):
            return self.store
        derived = self.store.derived
        storage = wrap_storage(self.stream.storage, self.index, derived)
        storage = TimeoutStorage(storage, self.stream.timeout)
        return RangeReader(storage, self.stream.retries, self.store.observer, derived)

    def check_columns(
        self, columns: Sequence[str] | None, *, allow_unsafe: bool, same: bool = True
    ) -> None:
        """Check the columns to read; `same` requires that all shards have them with equal encodings."""
        check_column_names(columns)
        if same:
            check_same_columns(self.index, columns)
        for schema in self.index.schemas:
            names = [column.name for column in schema.columns]
            check_names(f"columns={columns}", self.where, columns or (), names)
            for column in (c for c in schema.columns if columns is None or c.name in columns):
                if column.encoding.unsafe and not allow_unsafe:
                    raise UnsafeTypeError(
                        f"{self.where}: column {column.name!r} contains an unsafe type: {column.spec!r} "
                        "can run code from the data; pass allow_unsafe_types=True if you trust its "
                        "writer, or leave the column out with columns="
                    )


def wrap_storage(storage: Storage, index: Index, derived: Path | None) -> Storage:
    """Return the storage of the shards of an index: `storage`, unless a format composes them of other files.

    Args:
        storage: The storage of the data set.
        index: Its index.
        derived: Directory of the files that were made with the index, if any.
    """
    wrapped = (s.format.wrap_storage(storage, index, derived) for s in index.schemas)
    return next((other for other in wrapped if other is not storage), storage)


def _names_without_checksums(index: Index) -> set[str]:
    """Return the names of the stored files of which the index has no checksum."""
    names = set()
    for raw, compressed in index.file_tables:
        for shard in range(len(index)):
            file = (compressed and compressed.file(shard)) or raw.file(shard)
            if file is not None and not file.hashes:
                # A composed file is not stored under its name.
                is_composed = index.schema(shard).format.is_composed
                names.add(INDEX_NAME if is_composed else file.basename)
    return names


def check_column_names(columns: Any) -> None:
    """Raise `ConfigError` unless `columns` is None or a non-empty list of names."""
    if columns is None:
        return
    if isinstance(columns, str):
        raise ConfigError(f"columns={columns!r}: expected a list of names, such as [{columns!r}]")
    # An iterator would be used up here, and select no column.
    if not isinstance(columns, Collection) or not all(isinstance(name, str) for name in columns):
        raise ConfigError(f"columns={columns!r:.60}: expected a list of names")
    if not len(columns):
        raise ConfigError("columns=[] reads nothing; name at least one, or pass None for all")
