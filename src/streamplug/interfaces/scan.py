"""What a format tells of a file for which there is no index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class ScanFile(ABC):
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


@dataclass(frozen=True, slots=True)
class Scanned:
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
