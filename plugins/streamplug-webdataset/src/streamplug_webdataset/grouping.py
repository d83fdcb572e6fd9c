"""Grouping of consecutive archive members with the same key into samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from streamplug.errors import CorruptShardError
from streamplug_webdataset.members import BLOCK, Member
from streamplug_webdataset.names import KEY, URL, is_metadata, split_name
from streamplug_webdataset.sample_locations import MAX_BLOCKS, SampleLocations

_MAX_EXTENSIONS = 1000

_DOTS = (
    "extensions begin with numbers: if these belong to the keys, their dots have made one sample of "
    "several, as the extension begins at the first dot"
)
_SCATTERED = "keys are repeated later in the archive, where their files become another sample"


class _ExtensionColumn:
    """The values with one extension."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.blocks: list[int] = []
        self.sizes: list[int] = []


class Grouping:
    """Groups members into samples.

    Attributes:
        keys: Keys of the samples so far.
        nameless: Names of the first few members that belong to no sample.
        metadata: Number of members with metadata of the archive.
    """

    def __init__(self, split: Callable[[str], tuple[str, str] | None] = split_name) -> None:
        """Group by the key and the extension that `split` returns for a name; None belongs to no sample."""
        self.keys: list[str] = []
        self.nameless: list[str] = []
        self.metadata = 0
        self._columns: dict[str, _ExtensionColumn] = {}
        self._key: str | None = None
        self._split = split

    def add(self, member: Member) -> None:
        """Add a member.

        Raises:
            CorruptShardError: If its sample already has a value with this extension, or the extension has the
                name of a column that is no file.
        """
        name, begin, size = member
        if name.startswith("__") and is_metadata(name):
            self.metadata += 1
            return
        split = self._split(name)
        if split is None:
            if len(self.nameless) < 3:
                self.nameless.append(name)
            return
        key, extension = split
        if key != self._key:
            self._key = key
            self.keys.append(key)
        column = self._columns.get(extension)
        if column is None:
            column = self._columns[extension] = self._new(name, extension)
        row = len(self.keys) - 1
        if column.rows and column.rows[-1] == row:
            raise CorruptShardError(
                f"sample {row}: member {name!r} at byte {begin - BLOCK} is its second with the extension "
                f"{extension!r}; write the archive again with one value of each kind per sample"
            )
        column.rows.append(row)
        column.blocks.append(begin // BLOCK)
        column.sizes.append(size)

    def _new(self, name: str, extension: str) -> _ExtensionColumn:
        if extension.lower() in (KEY, URL):
            raise CorruptShardError(
                f"member {name!r} has the extension {extension!r}, which is the name of a column of its own; "
                "write the archive again with another extension"
            )
        if len(self._columns) == _MAX_EXTENSIONS:
            raise CorruptShardError(
                f"more than {_MAX_EXTENSIONS} extensions, the last that of {name!r}: the extension begins "
                "at the first dot of a file name, so names must not have other dots"
            )
        return _ExtensionColumn()

    def places(self, archive: int) -> SampleLocations:
        """Return the locations of the samples in an archive of `archive` bytes.

        Raises:
            CorruptShardError: If the archive is too large.
        """
        if archive // BLOCK >= MAX_BLOCKS:
            raise CorruptShardError(f"{archive} bytes: archives below 2 TiB are read")
        names, count = sorted(self._columns), len(self.keys)
        blocks = np.zeros((len(names), count), np.uint32)
        sizes = np.zeros((len(names), count), np.uint64)
        for number, name in enumerate(names):
            column = self._columns[name]
            blocks[number, column.rows] = column.blocks
            sizes[number, column.rows] = column.sizes
        keys = [key.encode() for key in self.keys]
        ends = np.cumsum([len(key) for key in keys], dtype=np.uint64)
        if count and int(ends[-1]) >= 1 << 32:
            raise CorruptShardError(f"its keys take {ends[-1]} bytes, more than 4 GiB")
        text = np.frombuffer(b"".join(keys), np.uint8)
        return SampleLocations(archive, names, blocks, sizes, ends.astype(np.uint32), text)

    def notes(self) -> Mapping[str, str]:
        """Return warnings about the archive, each with an example."""
        notes: dict[str, str] = {}
        if self.nameless:
            notes["files without an extension belong to no sample"] = ", ".join(
                map(repr, self.nameless)
            )
        seen: dict[str, str] = {}
        for name in self._columns:
            number, dot, rest = name.partition(".")
            if dot and number.isdigit() and seen.setdefault(rest, name) != name:
                notes[_DOTS] = f"{seen[rest]!r} and {name!r}"
                break
        known = set(self.keys)
        if len(known) < len(self.keys):
            for key in self.keys:
                if key not in known:
                    notes[_SCATTERED] = repr(key)
                    break
                known.remove(key)
        return notes
