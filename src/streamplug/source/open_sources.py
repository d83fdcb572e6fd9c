"""The opened streams of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, overload

from streamplug.index import Index, shards_digest
from streamplug.plan import DatasetFingerprint, StreamSelections
from streamplug.read import SampleReader, SelectedReader
from streamplug.source.open_stream import OpenStream
from streamplug.transfer import Observer
from streamplug.types import Int64

if TYPE_CHECKING:
    from streamplug.stream import Stream


@dataclass(frozen=True)
class OpenSources(Sequence[OpenStream]):
    """The opened streams of a data set, in order, and what follows from all of them."""

    streams: Sequence[OpenStream]

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
    def row_bytes(self) -> int:
        """Approximate stored bytes of a sample, at least 1."""
        size = sum(index.raw_bytes for index in self.indexes)
        return max(size // max(sum(index.size for index in self.indexes), 1), 1)

    @property
    def decoded_bytes(self) -> int:
        """Largest known bytes of a decoded sample; 0 if unknown."""
        schemas = (schema for index in self.indexes for schema in index.schemas)
        return max((schema.decoded_bytes for schema in schemas), default=0)

    def checked(self, columns: Sequence[str] | None, *, allow_unsafe: bool) -> OpenSources:
        """Check the columns to read, and return the streams with `allow_unsafe`.

        Raises:
            ConfigError: If a stream lacks one of the columns.
            UnsafeTypeError: If decoding one can run code, and not `allow_unsafe`.
        """
        for stream in self.streams:
            stream.check_columns(columns, allow_unsafe=allow_unsafe)
        return OpenSources([replace(stream, allow_unsafe=allow_unsafe) for stream in self.streams])

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
