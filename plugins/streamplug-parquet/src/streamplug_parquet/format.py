"""The Parquet shard format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from streamplug_files import ScannableFormat, ScanResult, ScanSource
from streamplug_ranges import RangeFile, RowGroupFormat, RowGroupReader

from streamplug.errors import CorruptShardError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    Encoding,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.types import Bytes1D
from streamplug_parquet.encodings import ArrowTypes, encoding_of
from streamplug_parquet.file_bytes import FileBytes, RangedFile, WholeFile
from streamplug_parquet.footer import MIN_FILE_BYTES, merge_entries, scanned
from streamplug_parquet.reader import ParquetReader
from streamplug_parquet.writer import ParquetWriter, WriteOptions


class Parquet(WritableFormat, ScannableFormat, RowGroupFormat):
    """``parquet``: Parquet files, with a row per sample.

    For writing, comma-separated options may follow a colon: the maximum rows of a row group,
    ``parquet:1000``; its size before compression, ``size=4mb``; and the compression within files,
    ``compression=zstd:9``. Reading needs no options.
    """

    suffix = "parquet"
    # As Spark, Hive and pyarrow leave out; a directory such as _day=1 is a partition.
    hidden_names: ClassVar[str] = r"\.|_(?![^/]*=[^/]*/)"
    table_files: ClassVar[Mapping[str, str]] = {
        "delta": "_delta_log/*",
        "hudi": ".hoodie/*",
        "iceberg": "metadata/[v0-9]*.metadata.json*",  # other files may have such sidecars
    }
    takes_arrow = True
    encodings: ClassVar[Mapping[str, Encoding]] = ArrowTypes()

    def __init__(self, options: WriteOptions | None = None) -> None:
        """Set the options for writing."""
        self._options = options or WriteOptions()

    @classmethod
    def from_spec(cls, argument: str | None) -> Parquet:
        return cls(WriteOptions.parse(argument))

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        return parse_columns(entry, make_encoding)

    def check(self, samples: int, role: str, size: int) -> None:
        if size < MIN_FILE_BYTES:
            raise InvalidIndexError(f"no Parquet file has {size} bytes")

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        return self._open(shard, WholeFile(files["data"]), columns)

    def open_row_groups(
        self, shard: ShardInfo, file: RangeFile, columns: Sequence[Column]
    ) -> RowGroupReader:
        return self._open(shard, RangedFile(file), columns)

    def _open(self, shard: ShardInfo, file: FileBytes, columns: Sequence[Column]) -> ParquetReader:
        reader = ParquetReader(file, columns)
        if len(reader) != shard.samples:
            raise CorruptShardError(f"it has {len(reader)} rows, the index says {shard.samples}")
        return reader

    def scan(self, file: ScanSource) -> ScanResult:
        return scanned(file)

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return merge_entries(entries)

    def infer_encoding(self, values: Any) -> str | None:
        return encoding_of(values)

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        return ParquetWriter(columns, settings, self._options)


def parse_columns(
    entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
) -> tuple[Column, ...]:
    """Return the columns of an entry, which maps their names to types of Arrow.

    Raises:
        InvalidIndexError: If it does not.
    """
    specs = entry.get("columns")
    if not isinstance(specs, dict) or not all(isinstance(s, str) for s in specs.values()):
        raise InvalidIndexError(f"columns must map names to types of Arrow, got {specs!r:.60}")
    if not specs:
        raise InvalidIndexError("columns must name at least one")
    return tuple(Column(name, spec, make_encoding(name, spec)) for name, spec in specs.items())
