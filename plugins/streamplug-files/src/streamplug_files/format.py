"""Roles of formats whose data can be read without an index.json of this library."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from streamplug.errors import InvalidIndexError
from streamplug.index import Index
from streamplug.interfaces import Format, Storage
from streamplug_files.multifile_storage import MultifileStorage
from streamplug_files.scan_source import (
    DatasetFiles,
    FileListEntry,
    FileSelection,
    ScanResult,
    ScanSource,
)


class FilesFormat(Format):
    """Base class of the roles: formats of which a list of files, or a pattern, can be opened."""

    source: ClassVar[str] = "files"


class ScannableFormat(FilesFormat):
    """A format whose data files can be read without an index, after one scan.

    Attributes:
        hidden_names: Regular expression of the start of the names of files, and of directories with a slash,
            that directories and wildcards leave out.
        table_files: Glob of the files that make a directory a table, by the name of the table's format. The
            data files of a table are refused, as they may have old or deleted rows.
        companion_suffix: Suffix of the file beside each data file, if other files have `suffix`, too:
            without it, a file is not detected as one of this format. Empty for none.
    """

    hidden_names: ClassVar[str] = r"\."
    table_files: ClassVar[Mapping[str, str]] = {}
    companion_suffix: ClassVar[str] = ""

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        """Return the file name suffixes of such files, uncompressed and without a dot."""
        return (cls.suffix,)

    @classmethod
    def complete_location(cls, location: str) -> str:
        """Return the data file that a location names which ends neither in a suffix nor in a slash.

        The default returns the location itself, which then is that of a directory.
        """
        return location

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


class MultiFileFormat(FilesFormat):
    """A format that stores each sample in its own file; these are grouped into shards.

    Its `roles` are ``("data", streamplug_files.MANIFEST_ROLE)``.
    """

    is_composed: ClassVar[bool] = True
    access_in_place: ClassVar[str | None] = "range"

    def wrap_storage(self, storage: Storage, index: Index, derived: Path | None) -> Storage:
        """Return a storage that serves the files of a shard as one."""
        return MultifileStorage(storage, index, derived)

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


class FileListFormat(FilesFormat):
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


class IndexImportFormat(FilesFormat):
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
