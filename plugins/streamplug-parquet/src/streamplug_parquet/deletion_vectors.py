"""Deletion vectors, which Delta Lake and Iceberg store alike: positions of rows as Roaring bitmaps.

The source is https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format. Importing this
module needs the extra ``streamplug-parquet[tables]``.
"""

from __future__ import annotations

import zlib

import numpy as np
from pyroaring import BitMap64

from streamplug.errors import DataError
from streamplug.types import Int64

_MAGIC = 1681511377
MAX_POSITIONS = 1 << 27
"""Maximum number of deleted rows of a table, each of which takes 8 bytes."""


def check_positions(count: int, where: str) -> None:
    """Refuse a table with too many deleted rows, before they are read.

    Raises:
        DataError: If there are more than `MAX_POSITIONS`.
    """
    if count > MAX_POSITIONS:
        raise DataError(
            f"{where}: {count} rows are deleted, more than {MAX_POSITIONS}; let the engine that writes the "
            "table write its files without them"
        )


def parse_stored_vector(stored: bytes, max_positions: int) -> Int64:
    """Return the positions of a vector in a file, which stands between its size and its CRC-32.

    Raises:
        ValueError: If it is damaged, or has more than `max_positions`.
    """
    data, checksum = stored[4:-4], stored[-4:]
    if int.from_bytes(stored[:4], "big") != len(data):
        raise ValueError(f"it has {len(data)} bytes, its head says otherwise")
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError("it does not have its checksum")
    return parse_vector(data, max_positions)


def parse_vector(data: bytes, max_positions: int) -> Int64:
    """Return the positions of a vector: int64, ascending and distinct.

    Raises:
        ValueError: If it is damaged, or has more than `max_positions`.
    """
    if int.from_bytes(data[:4], "little") != _MAGIC:
        raise ValueError("it does not begin as a deletion vector does")
    if len(data) == 4:
        raise ValueError("it ends after its first four bytes")
    bitmap = BitMap64.deserialize(data[4:])
    if len(bitmap) > max_positions:  # runs of them take a few bytes
        raise ValueError(f"it has {len(bitmap)} positions, more than {max_positions}")
    return np.asarray(bitmap.to_array(), np.uint64).astype(np.int64)
