"""Numbers inside of pages that say how large their values become.

The source is https://parquet.apache.org/docs/file-format/data-pages/encodings/.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamplug.errors import CorruptShardError
from streamplug.types import Int64
from streamplug_parquet.file_bytes import SparseView
from streamplug_parquet.page_headers import Page

_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_NUMBERS_PER_STEP = 1 << 15


def count_prefix_bytes(
    data: memoryview | SparseView, page: Page, codec: int, levels: tuple[int, int]
) -> int:
    """Return the bytes of all prefixes that values of a page share with the value before.

    Args:
        data: The file.
        page: A page with the encoding ``DELTA_BYTE_ARRAY``.
        codec: Number of the compression.
        levels: Maximum repetition level and definition level.

    Raises:
        CorruptShardError: If the page is damaged, or its compression is not known.
    """
    try:
        _, values = _split(data, page, codec, levels)
        lengths = _delta_numbers(values, page.values).astype(np.int32)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise CorruptShardError(f"a page is damaged: {type(error).__name__}: {error}") from error
    if len(lengths) and lengths.min() < 0:
        raise CorruptShardError("a page is damaged: a prefix has a negative length")
    return int(lengths.sum(dtype=np.int64))


def count_missing(
    data: memoryview | SparseView, page: Page, codec: int, levels: tuple[int, int]
) -> int:
    """Return the number of missing values of a page; arguments and errors as `count_prefix_bytes`."""
    try:
        (definitions, *_), _ = _split(data, page, codec, levels)
        return page.values - _count_level(definitions, levels[1], page.values)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise CorruptShardError(f"a page is damaged: {type(error).__name__}: {error}") from error


def max_text_bytes(data: memoryview | SparseView, page: Page, codec: int) -> int:
    """Return the bytes of the longest text of a dictionary; arguments and errors as above."""
    try:
        body = data[page.start : page.start + page.stored]
        values = _decompressed(body, page, page.size, codec)
    except (ValueError, KeyError, OSError) as error:
        raise CorruptShardError(f"a page is damaged: {type(error).__name__}: {error}") from error
    longest = position = 0
    for _ in range(page.values):
        length = int.from_bytes(values[position : position + 4], "little")
        longest, position = max(longest, length), position + 4 + length
        if position > len(values):
            raise CorruptShardError("a page is damaged: a text is beyond its end")
    return longest


def _split(
    data: memoryview | SparseView, page: Page, codec: int, levels: tuple[int, int]
) -> tuple[list[memoryview], memoryview]:
    """Return the definition levels and repetition levels of a page, and its values."""
    body = data[page.start : page.start + page.stored]
    if page.levels is not None:
        repetitions, definitions = page.levels
        cut = repetitions + definitions
        if min(page.levels) < 0 or cut > len(body):
            raise ValueError("levels are beyond the end")
        values = _decompressed(body[cut:], page, page.size - cut, codec)
        return [body[repetitions:cut], body[:repetitions]], values
    if page.has_old_levels:
        raise ValueError("levels are in an encoding that is deprecated")
    body, parts = _decompressed(body, page, page.size, codec), []
    for level in levels:
        size = int.from_bytes(body[:4], "little") if level else 0
        parts.append(body[4 : 4 + size])
        body = body[4 + size if level else 0 :]
    return parts[::-1], body


def _decompressed(body: memoryview, page: Page, size: int, codec: int) -> memoryview:
    if not page.is_compressed or not size:
        return body
    return memoryview(pa.Codec(_CODECS[codec]).decompress(body, size)).cast("B")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        part = data[position]
        value |= (part & 127) << shift
        position, shift = position + 1, shift + 7
        if part < 128:
            return value, position
        if shift > 63:
            raise ValueError("a number of too many bytes")


def _count_level(data: memoryview, level: int, count: int) -> int:
    """Return how many of `count` levels, in runs and packed bits, are `level`."""
    width = level.bit_length()
    position = found = 0
    while count > 0:
        head, position = _varint(data, position)
        if head & 1:
            run = min((head >> 1) * 8, count)
            stop = position + (head >> 1) * width
            found += _count_packed(data[position:stop], width, level, run)
            position = stop
        else:
            run, stop = min(head >> 1, count), position + (width + 7) // 8
            found += run * (int.from_bytes(data[position:stop], "little") == level)
            position = stop
        if position > len(data) or not run:
            raise ValueError("levels are cut short")
        count -= run
    return found


def _count_packed(data: memoryview, width: int, level: int, count: int) -> int:
    found, step = 0, width * _NUMBERS_PER_STEP // 8
    for place in range(0, len(data), step):
        numbers = _unpack(data[place : place + step], width)[:count]
        found, count = found + int((numbers == level).sum()), count - len(numbers)
    return found


def _unpack(data: memoryview, width: int) -> Int64:
    """Return numbers of `width` bits each, the lowest bits first."""
    flat = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    bits = flat[: len(flat) // width * width].reshape(-1, width)
    numbers: Int64 = bits.astype(np.int64) @ (np.int64(1) << np.arange(width, dtype=np.int64))
    return numbers


def _delta_numbers(data: memoryview, max_count: int) -> Int64:
    """Return numbers of the encoding ``DELTA_BINARY_PACKED``, modulo 2^64."""
    block, position = _varint(data, 0)
    miniblocks, position = _varint(data, position)
    count, position = _varint(data, position)
    first, position = _varint(data, position)
    if count > max_count or not miniblocks or block % (miniblocks * 8) or block > 1 << 20:
        raise ValueError(f"{count} numbers in blocks of {block}, in {miniblocks} parts")
    size = block // miniblocks
    deltas = np.zeros(count, np.uint64)
    if not count:
        return deltas.view(np.int64)
    deltas[0] = _zigzag(first)
    done = 1
    while done < count:
        lowest, position = _varint(data, position)
        widths, position = bytes(data[position : position + miniblocks]), position + miniblocks
        for width in widths:
            if done >= count:
                break
            stop = min(done + size, count)
            deltas[done:stop] = _zigzag(lowest)
            if width:
                if width > 64 or position + size * width // 8 > len(data):
                    raise ValueError("numbers are beyond the end")
                packed = data[position : position + size * width // 8]
                deltas[done:stop] += _unpack(packed, width)[: stop - done].view(np.uint64)
                position += size * width // 8
            done = stop
    return np.cumsum(deltas, dtype=np.uint64).view(np.int64)


def _zigzag(number: int) -> int:
    return ((number >> 1) ^ -(number & 1)) % (1 << 64)
