"""Shard formats: reading, and optional roles such as writing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamplug.interfaces.encoding import Encoding
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.shard import Column, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.interfaces.shard_writer import ShardWriter
from streamplug.interfaces.storage import Storage
from streamplug.types import Bytes1D, Int64

if TYPE_CHECKING:
    from streamplug.index import Index


class Format(Plugin):
    """A shard format: parses the shard entries of an index, and opens shards.

    A format that does more than read whole shards also subclasses some of the classes below::

        class MyFormat(WritableFormat, RangeReadableFormat): ...

    Instances pickle.

    Attributes:
        suffix: File name suffix of a raw data file, without a dot.
        roles: Roles of a shard's files. The index holds ``raw_<role>`` and ``zip_<role>`` for each.
        encodings: Valid encodings by spec; empty if all registered encodings are.
        key: Name of the ``str`` column with unique values that every data set of this format has; None if
            there is none.
        source: Name of the source that opens data of this format.
        is_composed: Whether the file ``data`` of a shard consists of several stored files, which
            `wrap_storage` serves as one.
        access_in_place: Name of the access that reads the shards of a data set in place, without a cache;
            None for that of the stream.
    """

    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    key: ClassVar[str | None] = None
    source: ClassVar[str] = "index"
    is_composed: ClassVar[bool] = False
    access_in_place: ClassVar[str | None] = None

    @abstractmethod
    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Return the columns of a shard.

        Args:
            entry: The shard's entry in the index, parsed from JSON but not validated.
            make_encoding: Returns the encoding of (column name, spec); let its errors propagate.

        Raises:
            InvalidIndexError: If the entry is not valid in this format.
        """

    def check(self, samples: int, role: str, size: int) -> None:
        """Check that a raw file of `size` bytes can hold this number of samples; the default accepts any.

        Raises:
            InvalidIndexError: If it cannot.
        """

    @abstractmethod
    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Open a shard for reading.

        Args:
            shard: The shard's metadata from the index.
            files: Memory maps of its raw files by role; read only.
            columns: All of its columns, as returned by `columns`.

        Raises:
            CorruptShardError: If the files contradict the index.
        """

    def multi_shard_reader(self, columns: Sequence[Column]) -> MultiShardReader | None:
        """Return a reader for samples of many shards at once; None to read shard by shard.

        It may also read shards of other data sets, of a format with the same class, name and argument and
        with the same names and encodings of columns.

        Args:
            columns: All columns of the shards, as returned by `columns`.
        """
        return None

    def wrap_storage(self, storage: Storage, index: Index, derived: Path | None) -> Storage:
        """Return a storage that serves the files of shards; the default is that of the data set itself.

        Args:
            storage: The storage of the data set.
            index: Its index.
            derived: Directory of the files that were made with the index, if any.
        """
        return storage


class WritableFormat(Format):
    """A format that shards can be written in.

    Attributes:
        takes_arrow: Whether its writer accepts Arrow arrays as the columns of a batch.
    """

    takes_arrow: ClassVar[bool] = False

    @abstractmethod
    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer of shards with these columns."""

    def infer_encoding(self, values: Any) -> str | None:
        """Return the spec for the values of a column; None to infer it from their Python types."""
        return None


class RangeReadableFormat(Format):
    """A format whose samples can be read by range, each being contiguous in the file ``data``.

    Attributes:
        header_role: Role of the file with the header.
    """

    header_role: ClassVar[str] = "data"

    @abstractmethod
    def header_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        """Return the bytes ``(start, stop)`` of the header that locates the samples.

        None if this shard can only be read as a whole.
        """

    @abstractmethod
    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        """Open a shard of which only the header was read.

        Args:
            shard: The shard's metadata from the index.
            head: The bytes of `header_range`; read only.
            columns: All of its columns, as returned by `columns`.

        Raises:
            CorruptShardError: If the header contradicts the index.
        """

    def estimate_ranges(
        self, shard: ShardInfo, rows: Int64, columns: Sequence[Column]
    ) -> Int64 | None:
        """Estimate the byte ranges of samples from the index, to download them together with the header.

        A sample outside its estimate is downloaded again. Called only if the header is in the file
        ``data``.

        Args:
            shard: The shard's metadata from the index.
            rows: Sample numbers, shape ``[n]``.
            columns: All of its columns, as returned by `columns`.

        Returns:
            Estimated start and end in the file, int64, shape ``[n, 2]``; None for no estimate.
        """
        return None
