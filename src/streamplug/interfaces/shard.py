"""Columns, shard metadata and writer settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamplug.errors import PluginError
from streamplug.interfaces.encoding import Encoding
from streamplug.types import FileInfo


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data set: its name, its encoding's spec in the index, and the encoding.

    Raises:
        PluginError: If the encoding's dtype has another size than its values.
    """

    name: str
    spec: str
    encoding: Encoding

    def __post_init__(self) -> None:
        dtype, size = self.encoding.dtype, self.encoding.size
        if dtype is not None and dtype.itemsize != size:
            kind = f"{type(self.encoding).__module__}.{type(self.encoding).__qualname__}"
            raise PluginError(
                f"column {self.name!r} ({self.spec}): {kind} has size={size} and dtype={dtype}, whose values "
                f"have {dtype.itemsize} bytes; set size = dtype.itemsize, or dtype = None"
            )


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of a shard: uncompressed, and compressed if it is stored so."""

    raw: FileInfo
    zip: FileInfo | None


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """Metadata of one shard from the index.

    Attributes:
        number: Position among the shards of its stream, from 0.
        samples: Number of samples; may be 0.
        files: Its files by role; most formats have only ``"data"``.
    """

    number: int
    samples: int
    files: Mapping[str, ShardFile]

    @property
    def basename(self) -> str:
        """Name of the first raw file."""
        return next(iter(self.files.values())).raw.basename

    @property
    def raw_bytes(self) -> int:
        """Bytes of the raw files."""
        return sum(file.raw.bytes for file in self.files.values())


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Settings of the writer that a format may repeat in its files."""

    compression: str | None
    hashes: tuple[str, ...]
    size_limit: int | None
