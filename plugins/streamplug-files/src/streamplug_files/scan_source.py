"""Sources and results of scans of data files without an index, and of indexes of other libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class ScanSource(ABC):
    """A raw data file to scan for samples.

    Attributes:
        name: Name in error messages.
        size: Size in bytes.
    """

    name: str
    size: int

    @abstractmethod
    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)``, fewer only at the end of the file.

        The file may be remote; reading forwards and skipping large parts are cheap.

        Raises:
            StorageError: If they cannot be read.
        """

    def read_blocks(self, starts: Sequence[int], size: int) -> Sequence[bytes]:
        """Return `size` bytes from each of several offsets, fewer only at the end of the file.

        Distant offsets are read concurrently where possible.

        Raises:
            StorageError: If they cannot be read.
        """
        return [self.read(start, start + size) for start in starts]

    def read_sibling(self, name: str) -> bytes | None:
        """Return the content of a small file in the same directory; None if it does not exist.

        Raises:
            StorageError: If it cannot be read.
        """
        return None


class DatasetFiles(ABC):
    """The files of a data set, for what is missing from the index.json of another library."""

    @abstractmethod
    def sizes(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the sizes of files in bytes, by name.

        Raises:
            StorageError: If a file does not exist, or the storage does not report sizes.
        """

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes ``[start, stop)`` of a file, fewer only at its end.

        Raises:
            StorageError: If they cannot be read.
        """


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The result of scanning a data file.

    Attributes:
        samples: Number of samples.
        entry: Keys that the format adds to the file's index entry.
        files: Content of its further files by role: all roles of the format but ``data``.
        notes: Warnings for the reader of the data set, each with an example.
    """

    samples: int
    entry: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileListEntry:
    """A data file in a file list of another library.

    Attributes:
        name: Path relative to the directory of the list, absolute path, or URL.
        samples: Number of samples.
        size: Stored size in bytes; None if the list does not say.
    """

    name: str
    samples: int
    size: int | None = None


@dataclass(frozen=True, slots=True)
class FileSelection:
    """The files that are the samples of a data set.

    Attributes:
        numbers: Numbers of the files, in the order of the data set.
        entry: Keys that the format adds to the index entries of its shards.
        labels: A label for each of `numbers`, if files have labels.
        notes: Warnings for the reader of the data set, each with an example.
    """

    numbers: Sequence[int]
    entry: Mapping[str, Any]
    labels: Sequence[int] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
