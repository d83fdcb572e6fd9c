"""Tells what a data set is: its columns, its shards, and a few of its samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.index import Index
from streamplug.stream import Stream
from streamplug.transfer.tempdir import TemporaryDirectory
from streamplug_tools.column_mapping import format_name
from streamplug_tools.json_lines import as_lines
from streamplug_tools.options import Place, streams
from streamplug_tools.row_access import raw_shard_bytes, stored_bytes


@dataclass(frozen=True, slots=True)
class ShardKind:
    """What many shards of a data set have in common.

    Attributes:
        format: Their format.
        compression: How they are compressed, or None.
        hashes: The digests that are known of their files.
        columns: Encoding of each column by name.
        shards: How many there are.
        samples: How many samples they have.
    """

    format: str
    compression: str | None
    hashes: tuple[str, ...]
    columns: dict[str, str]
    shards: int
    samples: int


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What a data set is.

    Attributes:
        url: Where it lies.
        shards: How many shards it has.
        samples: How many samples.
        raw_bytes: Of all files, not compressed.
        stored_bytes: Of all files, as they are stored.
        shard_bytes: Of the files of one shard, not compressed: the least, the median and the most.
        shard_samples: Samples of one shard: the least, the median and the most.
        kinds: What its shards are; of most sets, there is one.
        first: A few samples, by column: see `as_lines`.
    """

    url: str
    shards: int
    samples: int
    raw_bytes: int
    stored_bytes: int
    shard_bytes: tuple[int, int, int]
    shard_samples: tuple[int, int, int]
    kinds: tuple[ShardKind, ...]
    first: tuple[dict[str, Any], ...]


def inspect(source: Place | Stream, *, samples: int = 3) -> DatasetInfo:
    """Look at a data set.

    Args:
        source: A path, a URL or a stream.
        samples: How many of its samples to read; for 0, nothing but the index is.

    Raises:
        StreamplugError: If it cannot be read.
    """
    stream = streams(source)[0]
    with TemporaryDirectory() as folder:
        index = stream.with_defaults(local=str(folder)).open().index
        first = as_lines(stream, end=samples) if samples and index.size else ()
        return describe(stream.url, index, [json.loads(line) for line in first])


def describe(url: str, index: Index, first: Sequence[dict[str, Any]] = ()) -> DatasetInfo:
    """Return what a data set is, given its URL, its index, and a few of its samples."""
    number = index.schema_of
    counts = index.samples
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
        raw_bytes=index.raw_bytes,
        stored_bytes=stored_bytes(index),
        shard_bytes=_spread(raw_shard_bytes(index)),
        shard_samples=_spread(counts),
        kinds=kinds,
        first=tuple(first),
    )


def _spread(values: Any) -> tuple[int, int, int]:
    if not len(values):
        return (0, 0, 0)
    return int(values.min()), int(np.median(values)), int(values.max())
