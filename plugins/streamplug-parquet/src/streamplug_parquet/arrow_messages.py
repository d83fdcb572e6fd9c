"""Messages of Arrow IPC files and streams, found without their bodies.

Each message is a mark, the length of its metadata as int32, the metadata, a flatbuffer padded to 8 bytes, and
its body. A file has 8 bytes in front, and a footer behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import unpack_from
from typing import NamedTuple

from streamplug.errors import CorruptShardError

SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3
"""Kinds of messages; others are skipped."""

_FILE_MAGIC = b"ARROW1\0\0"
_MARK = b"\xff\xff\xff\xff"
_HEAD_BYTES = 8
_MAX_METADATA_BYTES = 1 << 28


class Message(NamedTuple):
    """A message of an Arrow file.

    Attributes:
        kind: `SCHEMA`, `DICTIONARY` or `RECORD_BATCH`.
        start: Offset of its mark.
        stop: Offset after its body.
        rows: Rows of a record batch, else 0.
        null_counts: Missing values of each array of a record batch or a dictionary, nested ones after those
            they are in.
        compressed: Start and bytes of each compressed buffer in the body, as offsets in the file.
    """

    kind: int
    start: int
    stop: int
    rows: int
    null_counts: tuple[int, ...]
    compressed: tuple[tuple[int, int], ...]


def iter_messages(read: Callable[[int, int], bytes], size: int) -> Iterator[Message]:
    """Yield the messages of a file.

    Args:
        read: Returns the bytes from a start to a stop.
        size: Bytes of the file.

    Raises:
        CorruptShardError: If it is damaged, or no Arrow file.
    """
    at = len(_FILE_MAGIC) if read(0, len(_FILE_MAGIC)) == _FILE_MAGIC else 0
    is_first = True
    while at < size:
        head = read(at, min(at + _HEAD_BYTES, size))
        if head[:4] != _MARK and is_first:
            raise CorruptShardError(
                f"it begins with {head[:4]!r}, and not with a message of Arrow: write it again with "
                "pyarrow, or as Parquet, if it is of Polars, or of Arrow before 0.15"
            )
        if len(head) < _HEAD_BYTES or head[:4] != _MARK:
            raise _damaged(at, size)
        (length,) = unpack_from("<i", head, 4)
        if length == 0:
            return
        start = at + _HEAD_BYTES
        if not 0 < length <= min(_MAX_METADATA_BYTES, size - start):
            raise _damaged(at, size)
        try:
            message = _parse(read(start, start + length), at, start + length)
        except (ValueError, IndexError, OSError, ArithmeticError) as error:
            raise _damaged(at, size) from error
        except Exception as error:  # struct.error
            raise _damaged(at, size) from error
        if message.stop > size:
            raise CorruptShardError(
                f"the message at byte {at} ends at byte {message.stop}, the file at {size}: it was cut short"
            )
        yield message
        at, is_first = message.stop, False


def _parse(data: bytes, start: int, body: int) -> Message:
    """Parse the metadata of a message, a flatbuffer."""
    table = unpack_from("<I", data, 0)[0]
    kind_at, header_at, length_at = (_field(data, table, number) for number in (1, 2, 3))
    kind = data[kind_at] if kind_at else 0
    body_bytes = unpack_from("<q", data, length_at)[0] if length_at else 0
    if body_bytes < 0:
        raise ValueError(body_bytes)
    rows = 0
    null_counts: tuple[int, ...] = ()
    compressed: tuple[tuple[int, int], ...] = ()
    if kind in (DICTIONARY, RECORD_BATCH):
        batch = header_at + unpack_from("<I", data, header_at)[0]
        if kind == DICTIONARY:  # a table with a record batch of one array
            at = _field(data, batch, 1)
            batch = at + unpack_from("<I", data, at)[0]
        rows_at, nodes_at = _field(data, batch, 0), _field(data, batch, 1)
        rows = unpack_from("<q", data, rows_at)[0] if rows_at and kind == RECORD_BATCH else 0
        # Pairs of a length and a number of missing values.
        null_counts = _pairs(data, nodes_at)[1::2]
        if _field(data, batch, 3):
            buffers = _pairs(data, _field(data, batch, 2))
            compressed = tuple(zip([body + place for place in buffers[::2]], buffers[1::2]))
        if rows < 0:
            raise ValueError(rows)
    return Message(kind, start, body + body_bytes, rows, null_counts, compressed)


def _pairs(data: bytes, at: int) -> tuple[int, ...]:
    """Return the numbers of a vector of pairs of int64; empty if there is none."""
    if not at:
        return ()
    vector = at + unpack_from("<I", data, at)[0]
    (count,) = unpack_from("<I", data, vector)
    numbers: tuple[int, ...] = unpack_from(f"<{2 * count}q", data, vector + 4)
    return numbers


def _field(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field of a table; 0 if it has its default."""
    vtable = table - unpack_from("<i", data, table)[0]
    if vtable < 0 or 4 + 2 * number >= unpack_from("<H", data, vtable)[0]:
        return 0
    offset: int = unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _damaged(at: int, size: int) -> CorruptShardError:
    return CorruptShardError(
        f"there is no message of Arrow at byte {at} of {size}: it is damaged, or was cut short"
    )
