"""Manifests of Iceberg tables, which are Avro files, read within bounds.

pyiceberg's own reader of Avro files is not used: its compiled decoder does not check that lengths are inside
the file, its decompression has no bound, and a file that was cut short ends early without an error. The
schemas and records are those of pyiceberg.

Sources: https://avro.apache.org/docs/1.12.0/specification/#object-container-files for the container, and
https://iceberg.apache.org/spec/#sequence-number-inheritance for what entries inherit.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)

from streamplug.interfaces import Compression
from streamplug.plugin import make

_SYNC_BYTES = 16
_CHECKSUM_BYTES = 4  # after a block that Snappy compressed
_COMPRESSIONS = {"bzip2": "bz2", "snappy": "snappy", "zstandard": "zstd"}
_MAX_BLOCK_BYTES = 1 << 28  # decompressed; writers make blocks of some 16 kB to 16 MB
_MIN_DECOMPRESSED_LIMIT_BYTES = 1 << 24
_MAX_COMPRESSION_RATIO = 256
"""A file may decompress to this many times its size, and these bytes; 2 to 130 times are usual."""

_MAX_INT_BYTES = 10  # of 64 bits


def parse_manifest_list(data: bytes) -> list[ManifestFile]:
    """Return the manifests of a manifest list; any exception if it is damaged."""
    types = {-1: ManifestFile, 508: PartitionFieldSummary}
    schema = MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
    return list(_records(data, schema, types, {517: ManifestContent}))


def parse_manifest(data: bytes, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest whose files exist; any exception if it is damaged."""
    types = {-1: ManifestEntry, 2: DataFile}
    enums = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
    entries = []
    for entry in _records(data, MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION], types, enums):
        if entry.status != ManifestEntryStatus.DELETED:
            inherits = manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED
            if entry.sequence_number is None and inherits:
                entry.sequence_number = manifest.sequence_number
            entry.data_file.spec_id = manifest.partition_spec_id
            entries.append(entry)
    return entries


def _records(data: bytes, schema: Any, types: Any, enums: Any) -> Iterator[Any]:
    decoder = _Decoder(data)
    header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    reader: Reader = resolve_reader(header.get_schema(), schema, types, enums)
    remaining = _MIN_DECOMPRESSED_LIMIT_BYTES + _MAX_COMPRESSION_RATIO * len(data)
    while decoder.tell() < len(data):
        count = decoder.read_int()
        limit = min(remaining, _MAX_BLOCK_BYTES)
        block = _decompress(decoder.read_bytes(), header.meta.get("avro.codec", "null"), limit)
        remaining -= len(block)
        if decoder.read(_SYNC_BYTES) != header.sync:
            raise ValueError("a block does not end where it should")
        if not 0 <= count <= len(block):  # each record takes a byte or more
            raise ValueError(f"a block of {len(block)} bytes has {count} records")
        records = _Decoder(block)
        yield from (reader.read(records) for _ in range(count))


class _Decoder(StreamingBinaryDecoder):
    """A decoder that only goes forward, and raises at the end of the data."""

    def read_int(self) -> int:
        number = 0
        for place in range(_MAX_INT_BYTES):
            byte = self.read(1)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise ValueError(f"a number takes more than {_MAX_INT_BYTES} bytes")

    def skip(self, n: int) -> None:
        self.read(n)


def _decompress(data: bytes, codec: str, max_size: int) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        stream = zlib.decompressobj(-zlib.MAX_WBITS)
        block = stream.decompress(data, max_size + 1)  # 0 would be no limit
        if not stream.eof or len(block) > max_size:
            raise ValueError(
                f"a block is cut short, or has more than {max_size} bytes, too many for the size of the file"
            )
        return block
    if codec == "snappy":
        data = data[:-_CHECKSUM_BYTES]
    compression: Compression = make("compression", _COMPRESSIONS[codec])
    return compression.decompress(data, max_size=max_size)
