"""Bounds of what chunks take in memory when they are decompressed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from streamplug_files import ValueSizes

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column
from streamplug.types import Int64

MIN_LIMIT_BYTES, MAX_EXPANSION = 1 << 30, 100
"""Bytes that are always permitted; ratio of decompressed to stored bytes that is."""

_HEADER, _BATCH_OF_DICTIONARY, _BUFFERS, _COMPRESSION = (
    2,
    1,
    2,
    3,
)  # numbers of fields in Arrow's schema


def check_decoded_size(size: int, stored: int, columns: Sequence[Column]) -> None:
    """Refuse a chunk that takes far more memory than its file.

    Raises:
        CorruptShardError: If it takes more than 1 GiB, 100 times its stored size, and `max_value_bytes`.
    """
    limit = _decoded_limit(stored, columns)
    if size > limit:
        raise CorruptShardError(
            f"it takes {size} bytes when decompressed, {stored} in its file, more than the limit of {limit}; "
            f"if you trust its writer, pass max_value_bytes={size} to the stream"
        )


def check_value_sizes(sizes: ValueSizes, rows: Int64, stored: int, column: Column) -> None:
    """Refuse rows whose values take far more memory as Python objects than the file.

    Args:
        sizes: Sizes of all values of the column, as `value_sizes` of streamplug-files returns them.
        rows: Numbers of the rows, shape ``[n]``.
        stored: Bytes of the file.
        column: The column.

    Raises:
        DecodeError: If they take more than 1 GiB, 100 times the stored size, and `max_value_bytes`.
    """
    size = sizes * len(rows) if isinstance(sizes, float) else float(sizes[rows].sum())
    limit = _decoded_limit(stored, [column])
    if size > limit:
        raise DecodeError(
            f"column {column.name!r}: {len(rows)} values take about {size:.0f} bytes, more than the limit of "
            f"{limit}; use a smaller batch_size, or if you trust the writer, pass max_value_bytes={size:.0f} "
            "to the stream"
        )


def _decoded_limit(stored: int, columns: Sequence[Column]) -> int:
    values = max((column.encoding.max_value_bytes for column in columns), default=0)
    return max(MIN_LIMIT_BYTES, MAX_EXPANSION * stored, values)


def decoded_bytes(messages: Iterator[Any]) -> int:
    """Return the bytes of the buffers of Arrow messages after decompression.

    Raises:
        CorruptShardError: If a message is damaged.
    """
    try:
        return sum(map(_message_bytes, messages))
    except (struct.error, IndexError) as error:
        raise CorruptShardError(f"a message of Arrow is damaged: {error}") from error


def _message_bytes(message: Any) -> int:
    if message.type not in ("record batch", "dictionary"):
        return 0
    data, body = memoryview(message.metadata).cast("B"), memoryview(message.body).cast("B")
    batch = _field(data, _offset(data, 0), _HEADER)
    if message.type == "dictionary":
        batch = _field(data, _offset(data, batch), _BATCH_OF_DICTIONARY)
    table = _offset(data, batch)
    place = _field(data, table, _BUFFERS)
    if not place or not _field(data, table, _COMPRESSION):
        return len(body)
    vector, total = _offset(data, place), 0
    (count,) = struct.unpack_from("<I", data, vector)
    for number in range(count):
        start, length = struct.unpack_from("<qq", data, vector + 4 + 16 * number)
        if length > 0:
            (size,) = struct.unpack_from("<q", body, start)
            total += length if size < 0 else size
    return total


def _offset(data: memoryview, place: int) -> int:
    """Return the place to which an offset in a flat buffer points."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the place of a field of a table in a flat buffer; 0 if the table does not have it."""
    entries = table - struct.unpack_from("<i", data, table)[0]
    if entries < 0:
        raise IndexError("a table is outside of its message")
    (size,) = struct.unpack_from("<H", data, entries)
    place = 4 + 2 * number
    found = struct.unpack_from("<H", data, entries + place)[0] if place < size else 0
    return table + found if found else 0
