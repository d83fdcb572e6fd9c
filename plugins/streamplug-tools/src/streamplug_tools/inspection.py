"""Summary of a data set: columns, shards and a few samples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from streamplug.config import suggest_keywords
from streamplug.display import ObjectSummary, SummaryRepr
from streamplug.index import Index
from streamplug.stream import Stream
from streamplug.transfer import TemporaryDirectory
from streamplug_tools.column_mapping import format_name
from streamplug_tools.json_lines import as_lines
from streamplug_tools.options import Location, check_count, whole_stream

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ShardKind:
    """Format and columns that several shards share.

    Attributes:
        format: Format.
        compression: Compression, or None.
        hashes: Hash algorithms of the files.
        columns: Encoding by column.
        shards: Number of shards.
        samples: Number of samples.
    """

    format: str
    compression: str | None
    hashes: tuple[str, ...]
    columns: dict[str, str]
    shards: int
    samples: int


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """Where the columns and the rows of a view come from; an index with an attribute ``origin`` has it.

    Attributes:
        version: The version, in words.
        columns: Locations of the data sets that each column comes from.
        steps: Operations that made it, and the number of samples after each.
    """

    version: str
    columns: Mapping[str, Sequence[str]]
    steps: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class DatasetInfo(SummaryRepr):
    """Summary of a data set, which a notebook shows as tables.

    Attributes:
        url: URL.
        shards: Number of shards.
        samples: Number of samples.
        raw_bytes: Uncompressed bytes of all files.
        stored_bytes: Stored bytes of all files.
        shard_bytes: Minimum, median and maximum of the uncompressed bytes of a shard.
        shard_samples: Minimum, median and maximum of the samples of a shard.
        kinds: Kinds of shards; most data sets have one.
        origin: Where the columns and the rows of a view come from; None for a data set.
        version: Version of a view or a table, in words; empty for a data set.
        first: The first samples by column, see `as_lines`.
    """

    url: str
    shards: int
    samples: int
    raw_bytes: int
    stored_bytes: int
    shard_bytes: tuple[int, int, int]
    shard_samples: tuple[int, int, int]
    kinds: tuple[ShardKind, ...]
    origin: TableOrigin | None = None
    version: str = ""
    first: tuple[dict[str, Any], ...] = ()

    def object_summary(self) -> ObjectSummary:
        """Return a summary of sizes and columns."""
        facts = [
            ("data set", self.url),
            *([("version", self.version)] if self.version else []),
            ("samples", f"{self.samples:,}"),
            ("shards", f"{self.shards:,}"),
            ("bytes", f"{self.stored_bytes:,} stored, {self.raw_bytes:,} raw"),
            ("format", ", ".join(_unique(kind.format for kind in self.kinds))),
            ("compression", ", ".join(_unique(kind.compression or "none" for kind in self.kinds))),
        ]
        columns = _unique(column for kind in self.kinds for column in kind.columns.items())
        return ObjectSummary(type(self).__name__, facts, ("column", "encoding"), columns)


@suggest_keywords
def inspect(source: Location | Stream, *, samples: int = 3) -> DatasetInfo:
    """Return the summary of a data set.

    Args:
        source: A path, a URL or a stream.
        samples: Number of samples to read; with 0 only the index is read.

    Raises:
        ConfigError: If the stream selects rows.
        StreamplugError: If it cannot be read.
    """
    samples, stream = check_count("samples", samples), whole_stream(source)
    with TemporaryDirectory() as folder:
        opened = stream.with_defaults(local=str(folder)).open()
        first = as_lines(stream, end=samples) if samples and opened.index.size else ()
        info = describe(opened.shown_url, opened.index, [json.loads(line) for line in first])
        return replace(info, version=opened.version)


def describe(url: str, index: Index, first: Sequence[dict[str, Any]] = ()) -> DatasetInfo:
    """Return the summary of a data set from its index and first samples."""
    number = index.schema_of
    counts, files = index.samples, without_scan_files(index)
    kinds = tuple(
        ShardKind(
            format_name(schema.entry),
            schema.compression,
            tuple(schema.entry.get("hashes") or ()),
            {column.name: column.spec for column in schema.columns},
            int((number == n).sum()),
            int(counts[number == n].sum()),
        )
        for n, schema in enumerate(index.schemas)
    )
    return DatasetInfo(
        url=url,
        shards=len(index),
        samples=index.size,
        raw_bytes=files.raw_bytes,
        stored_bytes=int(files.stored_shard_bytes.sum()),
        shard_bytes=_spread(files.raw_shard_bytes),
        shard_samples=_spread(counts),
        kinds=kinds,
        first=tuple(first),
        origin=getattr(index, "origin", None),
    )


def without_scan_files(index: Index) -> Index:
    """Return an index of the files of the data set, for their sizes: without those that a scan wrote."""
    if not (index.versions and len(index)):  # it was not scanned
        return index
    files = copy(index)
    # A scan writes digests of its own files, and knows none of the data set.
    files.tables = {key: table for key, table in index.tables.items() if not table.hashes[0]}
    return files


def _unique(values: Iterable[_T]) -> list[_T]:
    return [*dict.fromkeys(values)]


def _spread(values: Any) -> tuple[int, int, int]:
    if not len(values):
        return (0, 0, 0)
    return int(values.min()), int(np.median(values)), int(values.max())
