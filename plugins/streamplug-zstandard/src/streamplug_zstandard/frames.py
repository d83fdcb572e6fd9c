"""Walks the frames of Zstandard data without decompressing them (RFC 8878, section 3).

The library reads frames with a bound on its output, but takes data that ends early for data that
ends, and what is not a frame for the end of the data. The headers of frames and blocks tell.
"""

from __future__ import annotations

from typing import BinaryIO

from streamplug.errors import DecompressError
from streamplug.interfaces.compression import damaged

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_RLE, _RESERVED = 1, 3


def check_frames(source: BinaryIO) -> None:
    """Check that a file holds whole frames and nothing else; leaves it at its beginning.

    Raises:
        DecompressError: If it is empty, ends early, or something else stands between or behind.
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
            raise damaged("zstd", f"no frame begins at byte {position}")
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
            raise damaged("zstd", "a block of a kind that does not exist")
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
    return damaged("zstd", "it ends early")
