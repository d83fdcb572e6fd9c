"""What a format tells of files for which there is no index, or one of another library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class ScanSource(ABC):
    """A data file, raw, that is looked through for its samples.

    Attributes:
        name: What errors call it.
        size: How many bytes it has.
    """

    name: str
    size: int

    @abstractmethod
    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from one place to another, fewer only at the end of the file.

        Reading forwards is cheap, and so is leaving out much at a time; a file may be far away.

        Raises:
            StorageError: If they cannot be had.
        """

    def read_blocks(self, starts: Sequence[int], size: int) -> Sequence[bytes]:
        """Return so many bytes from each of some places on, fewer only at the end of the file.

        Places far from each other are read at once where that is possible.

        Raises:
            StorageError: If they cannot be had.
        """
        return [self.read(start, start + size) for start in starts]

    def read_sibling(self, name: str) -> bytes | None:
        """Return the content of a small file in the same directory; None if there is none.

        Raises:
            StorageError: If it cannot be had.
        """
        return None


class DatasetFiles(ABC):
    """The files of a data set, for what the index.json of another library does not say of them."""

    @abstractmethod
    def sizes(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return how many bytes files have, by their names.

        Raises:
            StorageError: If one does not exist, or the storage does not say.
        """

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return a part of a file, fewer bytes only at its end.

        Raises:
            StorageError: If it cannot be had.
        """


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What was found in a data file.

    Attributes:
        samples: How many samples it has.
        entry: The keys that the format adds to its entry in the index.
        files: The content of its further files by role: of all roles of the format but ``data``.
        notes: What whoever reads the data set should be told, each with an example.
    """

    samples: int
    entry: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileListEntry:
    """What a list of another library says of a data file.

    Attributes:
        name: Its path below the directory of the list, or an absolute one, or its URL.
        samples: How many samples it has.
        size: How many bytes it has, as it is stored; None where the list does not say.
    """

    name: str
    samples: int
    size: int | None = None


@dataclass(frozen=True, slots=True)
class FileSelection:
    """Which of some files are the samples of a data set.

    Attributes:
        numbers: Which, in the order of the data set.
        entry: The keys that the format adds to the entries of its shards in the index.
        labels: A number for each of `numbers`, if files have labels.
        notes: What whoever reads the data set should be told, each with an example.
    """

    numbers: Sequence[int]
    entry: Mapping[str, Any]
    labels: Sequence[int] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
