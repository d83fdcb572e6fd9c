"""Validation of Zstandard frames without decompression (RFC 8878, section 3).

With an output limit, the library accepts truncated data, and treats data that is not a frame as the end.
The headers of frames and blocks reveal both.
"""

from __future__ import annotations

from typing import BinaryIO

from streamplug.errors import DecompressError
from streamplug.plugin_kit import damaged_error

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_RLE, _RESERVED = 1, 3


def check_frames(source: BinaryIO) -> None:
    """Check that a file consists of complete frames, and seek to its start.

    Raises:
        DecompressError: If it is empty or truncated, or has data that is not a frame.
    """
    end = source.seek(0, 2)
    position = source.seek(0)
    while position < end or end == 0:
        magic = _number(source, 4)
        if magic & 0xFFFFFFF0 == _SKIPPABLE:
            source.seek(_number(source, 4), 1)
        elif magic == _MAGIC:
            _skip_frame(source)
        else:
            raise damaged_error("zstd", f"no frame begins at byte {position}")
        position = source.tell()
        if position > end:
            raise _cut()
    source.seek(0)


def _skip_frame(source: BinaryIO) -> None:
    descriptor = _number(source, 1)
    single_segment, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    content_size = (single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    source.seek(1 - single_segment + dictionary + content_size, 1)
    last = 0
    while not last:
        header = _number(source, 3)
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise damaged_error("zstd", "a block of a kind that does not exist")
        source.seek(1 if kind == _RLE else size, 1)
    source.seek(4 * checksum, 1)


def _number(source: BinaryIO, size: int) -> int:
    data = b""
    while len(data) < size:
        more = source.read(size - len(data))
        if not more:
            raise _cut()
        data += more
    return int.from_bytes(data, "little")


def _cut() -> DecompressError:
    return damaged_error("zstd", "it ends early")
