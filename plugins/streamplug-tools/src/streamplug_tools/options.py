"""What users say of a job: where from, where to, which columns; and what they are told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any, TypeAlias

from streamplug.config import parse_bytes
from streamplug.index.hashes import chosen_hashes
from streamplug.interfaces import Engine
from streamplug.stream import Stream
from streamplug_tools.column_mapping import format_name
from streamplug_tools.row_access import Table

ProgressCallback: TypeAlias = "Callable[[str, int, int], None]"
"""Called with what is being done, how much of it is done, and how much there is."""
Place: TypeAlias = "str | PathLike[str]"
Sources: TypeAlias = "Place | Stream | Sequence[Place | Stream]"


def streams(sources: Sources) -> list[Stream]:
    """Return the streams that are meant by a source, or by several."""
    if isinstance(sources, (str, PathLike, Stream)):
        sources = [sources]
    return [each if isinstance(each, Stream) else Stream(remote=fspath(each)) for each in sources]


def ignore_progress(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns a new data set takes of another, and how it stores them.

    Attributes:
        encodings: Encodings by name, in place of those that they have or what comes nearest.
        rename: New names by old ones.
        select: Those to take; None for all.
        drop: Those to leave out.
        allow_unsafe_types: Whether columns may be decoded if that can run code. Those of which the encoding
            stays are not decoded.
    """

    encodings: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    select: Sequence[str] | None = None
    drop: Sequence[str] = ()
    allow_unsafe_types: bool = False

    def takes(self, name: str) -> bool:
        """Say whether a column is taken, so that all sources must have it, unless it is left out."""
        return self.select is None or name in self.select


ALL_COLUMNS = Columns()
"""All columns, as they are."""


@dataclass(frozen=True)
class Output:
    """Where a new data set goes, and how it is written; None leaves it as it is with the source.

    Attributes:
        out: A local path, a URL, or a pair (local path, URL).
        format: Name of the format.
        compression: Name, and level after a colon; ``"none"`` for none.
        hashes: Names of the digests that the index has of each file; an empty sequence for none. If it is
            None and the source has none, too, they are those that `Writer` has by default.
        size_limit: Size of a raw shard above which the next is begun.
        processes: How many write at once; None for one for each processor, 0 for none but this one.
        engine: What has the parts written, or its name: ``"local"`` for those processes.
        exist_ok: Whether to remove another data set that is there.
        storage_options: Settings of the storage.
    """

    out: Any
    format: str | None = None
    compression: str | None = None
    hashes: Sequence[str] | None = None
    size_limit: float | str = 1 << 26
    processes: int | None = None
    engine: str | Engine = "local"
    exist_ok: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    def like(self, table: Table) -> Output:
        """Return it with values for what it leaves open: those of a table."""
        first = next(schema for index in table.indexes for schema in index.schemas)
        compression = first.compression if self.compression is None else self.compression
        hashes = (first.entry.get("hashes") or None) if self.hashes is None else self.hashes
        return replace(
            self,
            format=self.format or format_name(first.entry),
            compression=None if compression == "none" else compression,
            hashes=chosen_hashes(hashes),
            size_limit=parse_bytes(self.size_limit, "size_limit"),
        )


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A data set that was written.

    Attributes:
        url: Where it lies.
        shards: How many shards it has.
        samples: How many samples.
        bytes: Of all files, as they are stored.
    """

    url: str
    shards: int
    samples: int
    bytes: int
