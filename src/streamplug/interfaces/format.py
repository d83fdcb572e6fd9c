"""Formats of shards: reading, and the roles that a format may add."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.interfaces.encoding import Encoding
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


class Format(ABC):
    """A layout of shards: reads their entries in the index, and opens them.

    A format that can do more than read whole shards is one of the subclasses below as well, such as
    ``class MyFormat(WritableFormat, RangeReadableFormat)``. An instance pickles.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
        suffix: Ending of a raw data file's name, without a dot.
        roles: The files of a shard. The index holds ``raw_<role>`` and ``zip_<role>`` for each.
        encodings: The only encodings that its columns can have, by spec; empty for a format that takes those
            that are registered.
        key: Name of the column that every data set of this format has, a unique ``str``; None if it needs
            none.
    """

    api_version: ClassVar[int] = 1
    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    key: ClassVar[str | None] = None

    @classmethod
    def from_spec(cls, argument: str | None) -> Format:
        """Make the format for what follows its name after a colon; the default takes no argument.

        Raises:
            ConfigError: If the argument is invalid.
        """
        if argument is not None:
            raise ConfigError(f"format {cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Return the columns of a shard.

        Args:
            entry: The shard's entry in the index, as parsed from JSON and not yet checked.
            make_encoding: Makes the encoding of (column name, spec); its errors need no handling.

        Raises:
            InvalidIndexError: If the entry is not one of this format.
        """

    def check(self, samples: int, role: str, size: int) -> None:  # noqa: B027 - optional
        """Check that a raw file of `size` bytes can hold so many samples; the default accepts any.

        Raises:
            InvalidIndexError: If it cannot.
        """

    @abstractmethod
    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Open a shard for reading.

        Args:
            shard: What the index says of it.
            files: Content of its raw files by role; memory-mapped, read only.
            columns: All of its columns, as `columns` returned them.

        Raises:
            CorruptShardError: If the files are not what the index says.
        """

    def multi_shard_reader(self, columns: Sequence[Column]) -> MultiShardReader | None:
        """Return a reader of samples of many shards at once; None to read them shard by shard.

        Args:
            columns: All columns of the shards, as `columns` returned them.
        """
        return None


class WritableFormat(Format):
    """A format that shards can be written in.

    Attributes:
        takes_arrow: Whether its writer takes Arrow arrays as the columns of a batch.
    """

    takes_arrow: ClassVar[bool] = False

    @abstractmethod
    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer of shards with these columns."""

    def infer_encoding(self, values: Any) -> str | None:
        """Return the spec that suits the values of a column; None to infer it from their Python types."""
        return None


class RangeReadableFormat(Format):
    """A format whose samples can be fetched one by one, each a contiguous part of the file ``data``.

    Attributes:
        header_role: The file that `header_range` is a part of.
    """

    header_role: ClassVar[str] = "data"

    @abstractmethod
    def header_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        """Return the bytes ``(start, stop)`` of the file `header_role` that tell where samples lie.

        None if this shard can be read only as a whole.
        """

    @abstractmethod
    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        """Open a shard of which only the header was read.

        Args:
            shard: What the index says of it.
            head: The bytes of `header_range`; read only.
            columns: All of its columns, as `columns` returned them.

        Raises:
            CorruptShardError: If the header is not what the index says.
        """

    def estimate_ranges(
        self, shard: ShardInfo, rows: Int64, columns: Sequence[Column]
    ) -> Int64 | None:
        """Estimate from the index where samples lie, to fetch them together with the header.

        A sample that lies elsewhere is fetched again. Called only if the header is in the file ``data``.

        Args:
            shard: What the index says of it.
            rows: Which samples, shape ``[n]``.
            columns: All of its columns, as `columns` returned them.

        Returns:
            Likely begin and end of each in the file, int64, shape ``[n, 2]``; None for no estimate.
        """
        return None


class ScannableFormat(Format):
    """A format whose data files can be read without an index, by scanning them once."""

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        """Return how the names of such files end, uncompressed and without a dot."""
        return (cls.suffix,)

    @abstractmethod
    def scan(self, file: ScanSource) -> ScanResult:
        """Scan a data file for its samples.

        Raises:
            CorruptShardError: If the file is damaged; the message names the place.
        """

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the entry that all files of one data set get, from those that `scan` returned.

        The default requires them to be equal.

        Raises:
            InvalidIndexError: If they cannot be one data set.
        """
        if any(entry != entries[0] for entry in entries):
            raise InvalidIndexError("the files do not all have the same columns")
        return entries[0]


class MultiFileFormat(Format):
    """A format whose samples are files of their own, which the core groups into shards.

    Its `roles` are ``("data", streamplug.plugin_kit.manifest.MANIFEST_ROLE)``.
    """

    @abstractmethod
    def select_files(self, names: Sequence[str]) -> FileSelection:
        """Return which files of a directory tree are samples.

        Args:
            names: All paths below the root, sorted.

        Raises:
            DataError: If they cannot be a data set; the message names one of them.
        """


class FileListFormat(Format):
    """A format whose data files may be named by a list file of another library."""

    @abstractmethod
    def is_file_list(self, name: str) -> bool:
        """Say whether a location of this name is a list of files for `parse_file_list`."""

    @abstractmethod
    def parse_file_list(self, name: str, content: bytes) -> Sequence[FileListEntry] | None:
        """Return the files that a list names, in their order; None if it is no such list.

        The sizes and sample counts are checked against the files.

        Args:
            name: Name of the list.
            content: Its bytes, not yet checked.

        Raises:
            InvalidIndexError: If it is damaged, or of an unknown version.
        """

    def file_list_names(self) -> Sequence[str]:
        """Return the names to look for in a directory without an index.json; the first that exists counts."""
        return ()


class IndexImportFormat(Format):
    """A format that understands the index.json of another library."""

    @abstractmethod
    def import_index(self, index: Any, files: DatasetFiles) -> Sequence[Mapping[str, Any]] | None:
        """Return the shard entries that an index.json of another library stands for.

        Args:
            index: The document, as parsed from JSON and not yet checked.
            files: The files of the data set, for what the index does not say.

        Returns:
            Entries as in an index.json of this library; None if the document is not a known one.

        Raises:
            ConfigError: If the data set has something that cannot be read.
            InvalidIndexError: If the document is damaged.
        """
