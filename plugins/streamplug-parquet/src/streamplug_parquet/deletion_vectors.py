"""Deletion vectors, which Delta Lake and Iceberg store alike: positions of rows as Roaring bitmaps.

The source is https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format. Importing this
module needs the extra ``streamplug-parquet[tables]``.
"""

from __future__ import annotations

import zlib

import numpy as np
from pyroaring import BitMap64

from streamplug.types import Int64

_MAGIC = 1681511377
_MAX_POSITIONS = 1 << 27


def parse_stored_vector(stored: bytes) -> Int64:
    """Return the positions of a vector in a file, which stands between its size and its CRC-32.

    Raises:
        ValueError: If it is damaged.
    """
    data, checksum = stored[4:-4], stored[-4:]
    if int.from_bytes(stored[:4], "big") != len(data):
        raise ValueError(f"it has {len(data)} bytes, its head says otherwise")
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError("it does not have its checksum")
    return parse_vector(data)


def parse_vector(data: bytes) -> Int64:
    """Return the positions of a vector: int64, ascending and distinct.

    Raises:
        ValueError: If it is damaged.
    """
    if int.from_bytes(data[:4], "little") != _MAGIC:
        raise ValueError("it does not begin as a deletion vector does")
    bitmap = BitMap64.deserialize(data[4:])
    if len(bitmap) > _MAX_POSITIONS:  # runs of them take a few bytes
        raise ValueError(f"it has {len(bitmap)} positions, more than {_MAX_POSITIONS}")
    positions = bitmap.to_array()
    return np.array(positions, np.uint64).astype(np.int64)
