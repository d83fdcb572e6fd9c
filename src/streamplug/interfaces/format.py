"""Shard formats: reading, and optional roles such as writing and scanning."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamplug.errors import InvalidIndexError
from streamplug.interfaces.encoding import Encoding
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.scan import (
    DatasetFiles,
    FileListEntry,
    FileSelection,
    ScanResult,
    ScanSource,
)
from streamplug.interfaces.shard import Column, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.interfaces.shard_writer import ShardWriter
from streamplug.types import Bytes1D, Int64


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
    """

    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    key: ClassVar[str | None] = None

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


class ScannableFormat(Format):
    """A format whose data files can be read without an index, after one scan.

    Attributes:
        hidden_names: Regular expression of the start of the names of files, and of directories with a slash,
            that directories and wildcards leave out.
        table_files: Glob of the files that make a directory a table, by the name of the table's format. The
            data files of a table are refused, as they may have old or deleted rows.
    """

    hidden_names: ClassVar[str] = r"\."
    table_files: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        """Return the file name suffixes of such files, uncompressed and without a dot."""
        return (cls.suffix,)

    @abstractmethod
    def scan(self, file: ScanSource) -> ScanResult:
        """Scan a data file for its samples.

        Raises:
            CorruptShardError: If the file is damaged; the message gives the position.
        """

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the common index entry of a data set's files, from the entries that `scan` returned.

        The default requires them to be equal.

        Raises:
            InvalidIndexError: If the files do not form one data set.
        """
        if any(entry != entries[0] for entry in entries):
            raise InvalidIndexError("the files do not all have the same columns")
        return entries[0]


class MultiFileFormat(Format):
    """A format that stores each sample in its own file; the core groups these into shards.

    Its `roles` are ``("data", streamplug.plugin_kit.manifest.MANIFEST_ROLE)``.
    """

    @abstractmethod
    def select_files(self, names: Sequence[str]) -> FileSelection:
        """Return which files of a directory tree are samples.

        Args:
            names: All paths below the root, sorted.

        Raises:
            DataError: If they do not form a data set; the message names one of them.
        """

    def check_empty_directories(self, names: Sequence[str]) -> None:
        """Check the top-level directories without files, of which only local storages know.

        Args:
            names: Their names, sorted.

        Raises:
            DataError: If they do not belong in a data set.
        """


class FileListFormat(Format):
    """A format whose data files may be listed in a file of another library."""

    @abstractmethod
    def is_file_list(self, name: str) -> bool:
        """Return whether a location of this name is a file for `parse_file_list`."""

    @abstractmethod
    def parse_file_list(self, name: str, content: bytes) -> Sequence[FileListEntry] | None:
        """Return the files of a list in order; None if it is not such a list.

        The sizes and sample counts are checked against the files.

        Args:
            name: File name of the list.
            content: Its content, not validated.

        Raises:
            InvalidIndexError: If it is damaged, or of an unknown version.
        """

    def file_list_names(self) -> Sequence[str]:
        """Return the names to look for in a directory without index.json; the first existing file is used."""
        return ()


class IndexImportFormat(Format):
    """A format that can import the index.json of another library.

    Attributes:
        first_index_key: First key of these files, by which commands detect the format; None for none.
    """

    first_index_key: ClassVar[str | None] = None

    @abstractmethod
    def import_index(self, index: Any, files: DatasetFiles) -> Sequence[Mapping[str, Any]] | None:
        """Convert an index.json of another library to shard entries.

        Args:
            index: The document, parsed from JSON but not validated.
            files: The files of the data set, for what is missing from the index.

        Returns:
            Entries as in an index.json of this library; None if the document is of an unknown kind.

        Raises:
            ConfigError: If the data set uses an unsupported feature.
            InvalidIndexError: If the document is damaged.
        """
