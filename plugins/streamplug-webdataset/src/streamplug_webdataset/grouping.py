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
    "samples may be merged, or have columns of their own, for extensions begin at the first dot of a name "
    "(with format='webdataset:last_dot', at the last), and names have other dots that seem to belong to keys"
)
_WRAPPERS = ("gz", "bz2", "xz", "zst")  # they have another extension in front
_MANY_EXTENSIONS = 10
_RARE_SHARE = 0.1  # of the samples: parts that so few have are no kinds of values
_NAMELESS = "files without an extension, or of macOS (._*), belong to no sample"
_SCATTERED = "keys are repeated later in the archive, where their files become another sample"


class _ExtensionColumn:
    """The values with one extension."""

    def __init__(self, name: str) -> None:
        self.name = name  # of the first member
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
        return _ExtensionColumn(name)

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
            notes[_NAMELESS] = ", ".join(map(repr, self.nameless))
        if dotted := self._dotted_names():
            notes[_DOTS] = " and ".join(map(repr, dotted))
        known = set(self.keys)
        if len(known) < len(self.keys):
            for key in self.keys:
                if key not in known:
                    notes[_SCATTERED] = repr(key)
                    break
                known.remove(key)
        return notes

    def _dotted_names(self) -> list[str]:
        """Return one or two names of members whose keys probably have dots; none if there are none.

        Parts in front of the last extension are kinds of values if samples share them, as in ``a.seg.png``
        and ``b.seg.png``. They belong to keys if they have blanks, are numbers, or are each in few samples.
        """
        groups: dict[str, list[tuple[str, _ExtensionColumn]]] = {}
        for extension, column in self._columns.items():
            front, dot, last = extension.rpartition(".")
            if last in _WRAPPERS:
                front, dot, last = front.rpartition(".")
            if dot:
                groups.setdefault(last, []).append((front, column))
        for parts in groups.values():
            names = [column.name for front, column in parts if any(map(str.isspace, front))]
            numbers: dict[str, list[str]] = {}
            for front, column in parts:
                number, _, rest = front.partition(".")
                if number.isdecimal():
                    numbers.setdefault(rest, []).append(column.name)
            rare = [column.name for _, column in parts if len(column.rows) == 1]
            total = sum(len(column.rows) for _, column in parts)
            is_rare = total < _RARE_SHARE * len(parts) * len(self.keys)
            if len(parts) >= _MANY_EXTENSIONS and is_rare:
                rare = [column.name for _, column in parts]
            for likely in (names, *numbers.values(), rare if 2 * len(rare) > len(parts) else []):
                if len(likely) > 1 or (likely and likely is names):
                    return likely[:2]
        return []
