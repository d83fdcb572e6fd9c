"""Headers of the pages of column chunks.

The source is https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamplug.errors import CorruptShardError
from streamplug_parquet.file_bytes import SparseView
from streamplug_parquet.thrift import Chunk, Struct, parse_struct

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_DICTIONARY_ENCODINGS, _DELTA_BYTE_ARRAY, _BIT_PACKED_LEVELS = (2, 8), 7, 4


class Page(NamedTuple):
    """The header of a page.

    Attributes:
        is_dictionary: Whether it has the dictionary rather than values.
        start: Position of its body.
        stored: Bytes of the body in the file.
        size: Bytes of the body after decompression.
        values: Number of values, with missing ones.
        encoding: Number of the encoding.
        levels: Bytes of repetition and definition levels of a page of version 2; None for version 1.
        is_compressed: Whether the values are compressed.
        has_old_levels: Whether levels are in the encoding that is deprecated.
    """

    is_dictionary: bool
    start: int
    stored: int
    size: int
    values: int
    encoding: int
    levels: tuple[int, int] | None
    is_compressed: bool
    has_old_levels: bool

    @property
    def max_bytes(self) -> int:
        """Bytes of the body in the file or in memory, whichever are more."""
        return max(self.size, self.stored)

    @property
    def repeats_values(self) -> bool:
        """Whether values are numbers of entries of the dictionary."""
        return self.encoding in _DICTIONARY_ENCODINGS

    @property
    def shares_prefixes(self) -> bool:
        """Whether values are stored without the prefix that they share with the one before."""
        return self.encoding == _DELTA_BYTE_ARRAY


def parse_pages(data: memoryview | SparseView, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column chunk of a file.

    Raises:
        CorruptShardError: If a header is damaged.
    """
    position, values = chunk.start, 0
    while values < chunk.values:
        header, position = parse_struct(data, position)
        try:
            page, stored = _page(header, position, chunk.codec), int(header[3])
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            kind = type(error).__name__
            raise CorruptShardError(f"the header of a page is damaged: {kind}: {error}") from error
        if not 0 <= stored <= len(data) - position:
            raise CorruptShardError(f"a page has {stored} bytes, which the file does not have")
        position += stored
        if page is not None:
            values += 0 if page.is_dictionary else page.values
            yield page


def _page(header: Struct, start: int, codec: int) -> Page | None:
    """Return a page, or None if it is of a kind that Arrow skips, such as an index."""
    kind = header[1]
    if kind not in (_DATA, _DICTIONARY, _DATA_V2):
        return None
    inner = header[{_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}[kind]]
    is_v2 = kind == _DATA_V2
    size, values = int(header[2]), int(inner[1])
    if min(size, values) < 0:
        raise ValueError(f"{values} values in {size} bytes")
    return Page(
        kind == _DICTIONARY,
        start,
        int(header[3]),
        size,
        values,
        int(inner[4 if is_v2 else 2]),
        (int(inner[6]), int(inner[5])) if is_v2 else None,
        codec != 0 and (not is_v2 or inner.get(7, True)),
        kind == _DATA and _BIT_PACKED_LEVELS in (inner.get(3), inner.get(4)),
    )
