"""Shards as scripts for mosaicml-streaming see them: what the index says, and their samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.types import FileInfo

if TYPE_CHECKING:
    from streamplug.session.open_stream import OpenStream


class Shard:
    """A shard: its samples by number, and what a program asks of it.

    Attributes:
        samples: How many samples it has.
        file_pairs: Its raw and compressed files, of which the latter may be None.
    """

    def __init__(
        self,
        stream: OpenStream,
        number: int,
        first: int,
        read: Callable[[int], Any],
        directory: Path,
    ) -> None:
        """Describe a shard.

        Args:
            stream: The stream that it is of.
            number: Which shard of that.
            first: Number of its first sample.
            read: Returns a sample by its number.
            directory: Where its files are kept.
        """
        self._stream, self._number, self._first, self._read = stream, number, first, read
        self._directory = directory
        info = stream.index.shard(number)
        self.samples = info.samples
        # Metadata come first.
        self._roles = sorted(info.files, key="data".__eq__)
        self.file_pairs: list[tuple[FileInfo, FileInfo | None]] = [
            (info.files[role].raw, info.files[role].zip) for role in self._roles
        ]

    def __len__(self) -> int:
        return self.samples

    @property
    def size(self) -> int:
        """How many samples it has, by another name."""
        return self.samples

    def get_item(self, idx: int) -> Any:
        """Return a sample by its number in the shard.

        Raises:
            IndexError: If there is no such sample.
        """
        return self._read(self._first + place(idx, self.samples))

    def __getitem__(self, at: Any) -> Any:
        return get_many(self.get_item, at, self.samples)

    def __iter__(self) -> Iterator[Any]:
        return map(self.get_item, range(self.samples))

    # -- what the index says -----------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        files, entry = self._files(), self._stream.index.schema(self._number).entry
        if name in files:
            return files[name]
        if name in entry:
            return entry[name]
        raise AttributeError(
            f"a shard has no {name!r}; its files and what the index says: {sorted({*files, *entry})}"
        )

    def _files(self) -> dict[str, FileInfo | None]:
        pairs = zip(self._roles, self.file_pairs)
        return {
            f"{kind}_{role}": file
            for role, pair in pairs
            for kind, file in zip(("raw", "zip"), pair)
        }

    @property
    def compression(self) -> str | None:
        """Name of its compression; None for none."""
        return self._stream.index.schema(self._number).compression

    @property
    def dirname(self) -> str:
        """The directory that its files are kept in, without the split."""
        directory = str(self._directory)
        split = self.split
        return directory.removesuffix(os.sep + split) if split else directory

    @property
    def split(self) -> str:
        """Sub-directory of that; empty for none."""
        return self._stream.stream.split or ""

    # -- what it takes -------------------------------------------------------------------

    def get_raw_size(self) -> int:
        """Return the bytes of its raw files."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> int | None:
        """Return the bytes of its compressed files; None if it has none."""
        sizes = [stored.bytes for _, stored in self.file_pairs if stored is not None]
        return sum(sizes) if len(sizes) == len(self.file_pairs) else None

    def get_max_size(self) -> int:
        """Return the bytes that it takes while it is decompressed."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Return the bytes that it takes once it is decompressed.

        Args:
            keep_zip: Whether compressed files stay.
        """
        return self.get_max_size() if keep_zip else self.get_raw_size()

    def present(self) -> list[os.stat_result]:
        """Return what the file system says of those of its files that are on this machine."""
        found = []
        for pair in self.file_pairs:
            for file in pair:
                path = self._directory / file.basename if file else None
                if path is not None and path.is_file():
                    found.append(path.stat())
        return found


def place(at: Any, size: int) -> int:
    """Return a number, negative from the end, as one from 0 on.

    Raises:
        IndexError: If there are not so many.
    """
    number = operator.index(at)
    if not -size <= number < size:
        raise IndexError(f"there is no sample {number}: there are {size}")
    return number % size


def get_many(get_item: Callable[[int], Any], at: Any, size: int) -> Any:
    """Return one sample, or several: of a slice, a list or an array of numbers, also nested.

    Args:
        get_item: Returns a sample by its number.
        at: Which.
        size: How many there are.

    Raises:
        IndexError: If there are not so many.
    """
    if isinstance(at, slice):
        return [get_item(number) for number in range(*at.indices(size))]
    if isinstance(at, (list, np.ndarray)) and getattr(at, "shape", True) != ():
        return [get_many(get_item, number, size) for number in at]
    return get_item(place(at, size))
