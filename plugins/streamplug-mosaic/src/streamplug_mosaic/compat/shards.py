"""Shards as a sequence of samples with the attributes of their index entry."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamplug.types import FileInfo
from streamplug_mosaic.compat.checks import SampleIndexError

if TYPE_CHECKING:
    from streamplug.source import OpenStream


class Shard:
    """A shard: its samples by number, sizes, files and index entry.

    Attributes:
        samples: Number of samples.
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
            stream: Its stream.
            number: Its number in the stream.
            first: Number of its first sample in the data set.
            read: Returns a sample of the data set by its number.
            directory: Directory of its files.
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
        """Number of samples."""
        return self.samples

    def get_item(self, idx: int) -> Any:
        """Return a sample by its number in the shard.

        Raises:
            SampleIndexError: If the index is out of range, or no integer.
        """
        return self._read(self._first + check_index(idx, self.samples, self._place))

    def __getitem__(self, at: Any) -> Any:
        return get_many(self.get_item, at, self.samples, self._place)

    def __iter__(self) -> Iterator[Any]:
        return map(self.get_item, range(self.samples))

    @cached_property
    def _place(self) -> str:
        names = ", ".join(raw.basename for raw, _ in self.file_pairs)
        return f"shard {names} of {self._stream.stream.url}"

    # -- index entry -----------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        files, entry = self._files(), self._stream.index.schema(self._number).entry
        if name in files:
            return files[name]
        if name in entry:
            return entry[name]
        raise AttributeError(f"a shard has no {name!r}; its attributes: {sorted({*files, *entry})}")

    def _files(self) -> dict[str, FileInfo | None]:
        pairs = zip(self._roles, self.file_pairs)
        return {
            f"{kind}_{role}": file
            for role, pair in pairs
            for kind, file in zip(("raw", "zip"), pair)
        }

    @property
    def compression(self) -> str | None:
        """Name of the compression; None without."""
        return self._stream.index.schema(self._number).compression

    @property
    def dirname(self) -> str:
        """Directory of its files, without the split."""
        directory = str(self._directory)
        split = self.split
        return directory.removesuffix(os.sep + split) if split else directory

    @property
    def split(self) -> str:
        """Sub-directory of `dirname`; empty without."""
        return self._stream.stream.split or ""

    # -- sizes -------------------------------------------------------------------

    def get_raw_size(self) -> int:
        """Return the size of the raw files in bytes."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> int | None:
        """Return the size of the compressed files in bytes; None without."""
        sizes = [stored.bytes for _, stored in self.file_pairs if stored is not None]
        return sum(sizes) if len(sizes) == len(self.file_pairs) else None

    def get_max_size(self) -> int:
        """Return the size of raw and compressed files in bytes."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Return the size of the files that stay in the cache, in bytes.

        Args:
            keep_zip: Whether compressed files are kept.
        """
        return self.get_max_size() if keep_zip else self.get_raw_size()

    def stat_files(self) -> list[os.stat_result]:
        """Return the status of each file that is on this machine."""
        statuses = []
        for pair in self.file_pairs:
            for file in pair:
                path = self._directory / file.basename if file else None
                if path is not None and path.is_file():
                    statuses.append(path.stat())
        return statuses


def check_index(index: Any, size: int, place: str) -> int:
    """Return an index, negative from the end, as a number from 0.

    Args:
        index: The index.
        size: Number of samples.
        place: What has the samples, for errors.

    Raises:
        SampleIndexError: If it is out of range, or no integer.
    """
    try:
        # Before 2.3, NumPy warns only where one of its bools is an index.
        number = size if isinstance(index, np.bool_) else operator.index(index)
    except TypeError:
        number = size
    if not -size <= number < size:
        raise SampleIndexError(describe_index(index, size, place))
    return number % size


def describe_index(index: Any, size: int, place: str) -> str:
    """Return what is wrong with an index, or with some of several.

    Args:
        index: The index, or several.
        size: Number of samples.
        place: What has the samples.
    """
    span = f"has samples 0 to {size - 1}" if size else "has no samples"
    return (
        f"Invalid sample index {index!r:.60}: {place} {span}; index by an integer, negative from the end, or "
        "by a slice, list or array of integers"
    )


def get_many(get_item: Callable[[int], Any], at: Any, size: int, place: str) -> Any:
    """Return a sample, or a list of samples for a slice, list or array of indices.

    Args:
        get_item: Returns a sample by its number.
        at: An index, or a slice, list or array of them.
        size: Number of samples.
        place: What has the samples, for errors.

    Raises:
        SampleIndexError: If an index is out of range, or no integer.
    """
    if isinstance(at, slice):
        return [get_item(number) for number in range(*at.indices(size))]
    if isinstance(at, (list, np.ndarray)) and getattr(at, "shape", True) != ():
        return [get_many(get_item, number, size, place) for number in at]
    return get_item(check_index(at, size, place))
