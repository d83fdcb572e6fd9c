"""Columns, shards and the settings of writers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamplug.interfaces.encoding import Encoding
from streamplug.types import FileInfo


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data set: its name, its encoding as spelt in the index, and the encoding."""

    name: str
    spec: str
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a shard: as it is read, and as it is stored when that is compressed."""

    raw: FileInfo
    zip: FileInfo | None


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """What the index says of one shard.

    Attributes:
        number: Position among the shards of its stream, from 0.
        samples: How many samples it holds; may be 0.
        files: Its files by role; most formats have the one role ``"data"``.
    """

    number: int
    samples: int
    files: Mapping[str, ShardFile]


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """What a format may repeat inside its files, as the writer's user gave it."""

    compression: str | None
    hashes: tuple[str, ...]
    size_limit: int | None
