"""Streams whose index has been read, and all those of a data set."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from streamplug.cache import ShardStore
from streamplug.config import check_names
from streamplug.errors import ConfigError, UnsafeTypeError
from streamplug.index import INDEX_NAME, Index, check_same_columns, shards_digest
from streamplug.interfaces import Storage
from streamplug.plan import DatasetFingerprint, RowSelection, StreamSelections
from streamplug.read import Reader, SampleReader, SelectedReader, StreamShards
from streamplug.source.access import ShardFiles
from streamplug.transfer import Observer, TimeoutStorage, file_versions
from streamplug.types import Int64

if TYPE_CHECKING:
    from streamplug.stream import Stream


@dataclass(frozen=True)
class OpenStream:
    """A stream whose index has been read.

    `files` are those of its shards; a subclass without shards of its own has None, and overrides `downloads`
    and `make_reader`. `version` is that of a view or a table, in words. `allow_unsafe` is the data set's
    `allow_unsafe_types`, for what reads other columns than the data set.
    """

    stream: Stream
    index: Index
    files: ShardFiles | None
    where: str
    selection: RowSelection | None = None
    version: str = ""
    allow_unsafe: bool = field(default=False, kw_only=True)

    @property
    def downloads(self) -> bool:
        """Whether samples may have to be downloaded."""
        return self.shard_files.are_fetched

    @property
    def shown_url(self) -> str:
        """URL of the data set, or of its file if it is a single one that is read without an index.json."""
        index, url = self.index, self.stream.url
        is_scanned = self.files is not None and self.files.derived is not None
        if self.version or not is_scanned or not len(index):
            return url
        first, last = index.shard(0).basename, index.shard(len(index) - 1).basename  # in order
        if first != last or any(schema.format.is_composed for schema in index.schemas):
            return url
        return self.stream.storage.url_of(first)

    @property
    def shard_files(self) -> ShardFiles:
        """Files of its own shards.

        Raises:
            ConfigError: If it has none, as a view.
        """
        if self.files is None:
            raise ConfigError(
                f"{self.where} has no shards of its own: name the data sets that it refers to"
            )
        return self.files

    @property
    def store(self) -> ShardStore:
        """Cache of its shards.

        Raises:
            ConfigError: If none is kept.
        """
        if self.files is None or self.files.store is None:
            raise ConfigError(
                f"{self.stream!r}: access='range' and views keep no shards; use access='shard' with a "
                "data set to have them in a cache"
            )
        return self.files.store

    @property
    def rows_digest(self) -> str:
        """Identity of the rows that are read; empty for all of a data set without versions."""
        digest = "" if self.selection is None else self.selection.digest
        return f"{self.version} {self.index.digest} {digest}".strip() if self.version else digest

    @property
    def folders(self) -> set[tuple[str, str]]:
        """Endpoints and URLs of the directories of its shards, which may be those of other data sets."""
        storage, shards = self.stream.storage, range(len(self.index))
        names = (table.basenames[n] for table in self.index.tables.values() for n in shards)
        return {(storage.endpoint, storage.url_of(name.rpartition("/")[0])) for name in names}

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

    def shards(self, columns: Sequence[str] | None) -> StreamShards:
        """Return a reader of these columns of the shards; None selects all columns."""
        return self.shard_files.access.open_shards(self, columns)

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


@dataclass(frozen=True)
class OpenSources(Sequence[OpenStream]):
    """The opened streams of a data set, in order, and what follows from all of them."""

    streams: Sequence[OpenStream]
    columns: Sequence[str] | None = None
    """Names of the columns that are read; None for all."""

    @classmethod
    def open(cls, streams: Iterable[Stream], observer: Observer | None = None) -> OpenSources:
        """Open streams; see `Stream.open`."""
        return cls([stream.open(observer) for stream in streams])

    @overload
    def __getitem__(self, number: int) -> OpenStream: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[OpenStream]: ...

    def __getitem__(self, number: Any) -> Any:
        return self.streams[number]

    def __len__(self) -> int:
        return len(self.streams)

    @property
    def indexes(self) -> list[Index]:
        """The indexes of the streams."""
        return [stream.index for stream in self.streams]

    @property
    def downloads(self) -> bool:
        """Whether samples may have to be downloaded."""
        return any(stream.downloads for stream in self.streams)

    @property
    def cache_share(self) -> float | None:
        """Smallest share of the shards of a cache directory that its limit holds.

        None without limits. Shares of a disk do not count, as machines may have disks of other sizes, and
        what follows must be the same on all.
        """
        needed: dict[Path, int] = {}
        limits: dict[Path, int] = {}
        for stream in self.streams:
            options, index = stream.stream, stream.index
            store = None if stream.files is None else stream.files.store
            if store is None or store.limit is None or "%" in str(options.cache_limit):
                continue
            zipped = options.keep_zip and index.compressed
            size = index.raw_bytes + int(index.stored_shard_bytes.sum() if zipped else 0)
            root = options.location.root
            needed[root] = needed.get(root, 0) + size
            limits[root] = store.limit
        shares = (limits[root] / max(size, 1) for root, size in needed.items())
        return min(shares, default=None)

    @property
    def row_bytes(self) -> int:
        """Approximate stored bytes of a sample, at least 1."""
        size = sum(index.raw_bytes for index in self.indexes)
        return max(size // max(sum(index.size for index in self.indexes), 1), 1)

    @property
    def decoded_bytes(self) -> int:
        """Largest known bytes of a decoded sample; 0 if unknown."""
        schemas = (schema for index in self.indexes for schema in index.schemas)
        return max((schema.decoded_bytes for schema in schemas), default=0)

    @property
    def releases_gil(self) -> bool:
        """Whether decoding a column that is read takes most of its time without the interpreter lock."""
        return any(
            column.encoding.releases_gil
            for index in self.indexes
            for schema in index.schemas
            for column in schema.columns
            if self.columns is None or column.name in self.columns
        )

    def checked(self, columns: Sequence[str] | None, *, allow_unsafe: bool) -> OpenSources:
        """Check the columns to read, and return the streams with `allow_unsafe`.

        Raises:
            ConfigError: If a stream lacks one of the columns.
            UnsafeTypeError: If decoding one can run code, and not `allow_unsafe`.
        """
        for stream in self.streams:
            stream.check_columns(columns, allow_unsafe=allow_unsafe)
        streams = [replace(stream, allow_unsafe=allow_unsafe) for stream in self.streams]
        return OpenSources(streams, columns)

    def stored(self, column: str | None) -> OpenSources:
        """Return the data sets that these are rows of, for what reads stored shards.

        Args:
            column: The only column that will be read; None for all.

        Raises:
            ConfigError: If a stream is a view whose samples are not selected rows of one data set.
        """
        return OpenSources([stream.stored(column) for stream in self.streams])

    def make_reader(self, columns: Sequence[str] | None) -> SampleReader:
        """Return a reader of the selected rows of all streams; `columns` of None are all."""
        with_own = (stream for stream in self.streams if stream.files is None)
        first = next(with_own, self.streams[0])
        reader = first.make_reader(self.streams, columns)
        selections = [stream.selection for stream in self.streams]
        if not any(selection is not None for selection in selections):
            return reader
        sizes = [index.size for index in self.indexes]
        return SelectedReader(reader, StreamSelections(selections, sizes))

    def make_fingerprint(self, starts: Int64) -> DatasetFingerprint:
        """Return the fingerprint of the samples that states record.

        Args:
            starts: First sample id of each shard, and the number of samples.
        """
        digests = [index.digest for index in self.indexes]
        # The digest of a single stream may be known without a pass over its shards.
        digest = digests[0] if len(digests) == 1 else shards_digest(starts)
        selections = [stream.rows_digest for stream in self.streams]
        if any(selections):
            digest = blake2b(" ".join([digest, *selections]).encode(), digest_size=8).hexdigest()
        return DatasetFingerprint(digest, [len(i) for i in self.indexes], digests, selections)
