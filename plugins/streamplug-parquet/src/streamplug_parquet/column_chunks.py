"""Where the column chunks of a file are, from its footer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from streamplug_ranges import coalesce_ranges

from streamplug.errors import CorruptShardError
from streamplug.types import Int64
from streamplug_parquet.footer import footer_size, schema_of
from streamplug_parquet.thrift import Chunk, chunks_of

_COUNTS_HEADERS = re.compile(
    r"(?!parquet-mr)|parquet-mr version ([2-9]|1\.([3-9]|\d\d|2\.(9|\d\d)))"
)
_UNCOUNTED_BYTES = 100
"""Bytes of the header of a dictionary, which early writers did not count."""


class LeafChunk(NamedTuple):
    """A chunk of a leaf column.

    Attributes:
        column: The leaf column in the schema of the file.
        slots: Values that Arrow allocates for a missing list of one size.
        is_inside_list: Whether this list is itself in a list of any size.
        chunk: The column chunk.
    """

    column: Any
    slots: int
    is_inside_list: bool
    chunk: Chunk


class ColumnChunks:
    """The column chunks of a file."""

    def __init__(self, end: memoryview, metadata: pq.FileMetaData) -> None:
        """Parse the footer at the end of a buffer, which `metadata` was read of.

        Raises:
            CorruptShardError: If it is damaged.
        """
        self._metadata = metadata
        self._chunks = chunks_of(bytes(end[-footer_size(end) :]))
        # Arrow may read a damaged footer otherwise, such as one that lists its row groups twice.
        counts = [len(chunks) for chunks in self._chunks]
        if counts != [metadata.num_columns] * metadata.num_row_groups:
            raise CorruptShardError(
                "its footer is damaged: it lacks row groups, or columns of them"
            )
        columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        slots = [each for field in schema_of(metadata) for each in _list_slots(field.type)]
        if len(slots) != len(columns):
            raise CorruptShardError("its schema is damaged: it lacks columns")
        self._columns = list(zip(columns, slots))

    def count_rows(self, group: int) -> int:
        """Return the number of rows of a row group."""
        return int(self._metadata.row_group(group).num_rows)

    def of(self, group: int, names: Sequence[str]) -> Iterator[LeafChunk]:
        """Yield the chunks of columns of a row group: those of all leaves below them.

        Raises:
            CorruptShardError: If one is encrypted.
        """
        wanted = set(names)
        for (column, slots), chunk in zip(self._columns, self._chunks[group]):
            # pyarrow reads columns by these names, and those whose paths begin with them.
            if wanted.isdisjoint(accumulate(column.path.split("."), "{}.{}".format)):
                continue
            if chunk.is_encrypted:
                raise CorruptShardError(
                    f"row group {group}, column {column.path!r}: it is encrypted, which cannot be read"
                )
            yield LeafChunk(column, *slots, chunk)

    def byte_ranges(self, group: int, names: Sequence[str], stop: int) -> Int64:
        """Return the bytes of columns of a row group in the file: start and stop, shape ``[n, 2]``.

        Args:
            group: Number of the row group.
            names: Names of the columns.
            stop: Where the footer begins.

        Raises:
            CorruptShardError: If one is encrypted, or not before the footer.
        """
        ranges = []
        for column, _, _, chunk in self.of(group, names):
            end = chunk.start + chunk.stored
            if end > stop:
                raise CorruptShardError(
                    f"row group {group}, column {column.path!r}: its footer has it at bytes {chunk.start} "
                    f"to {end}, but begins at byte {stop}"
                )
            if chunk.stored:
                ranges.append((chunk.start, min(end + self._uncounted_bytes, stop)))
        return coalesce_ranges(np.array(ranges, np.int64).reshape(-1, 2), 0)

    @property
    def _uncounted_bytes(self) -> int:
        try:
            writer = self._metadata.created_by or ""
        except UnicodeDecodeError:
            writer = ""
        return 0 if _COUNTS_HEADERS.match(writer) else _UNCOUNTED_BYTES


def _list_slots(
    type_: pa.DataType, sizes: tuple[int, ...] = (), *, inside: bool = False
) -> Iterator[tuple[int, bool]]:
    """Yield the product of the sizes of lists of one size around each leaf of a type.

    With it comes whether they are inside of lists of any size.
    """
    of = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        yield from _list_slots(type_.storage_type, sizes, inside=inside)
    elif of.is_fixed_size_list(type_):
        yield from _list_slots(type_.value_type, (*sizes, type_.list_size), inside=inside)
    elif of.is_nested(type_):
        inside = inside or not of.is_struct(type_)
        for number in range(type_.num_fields):
            yield from _list_slots(type_.field(number).type, sizes, inside=inside)
    else:
        yield prod(sizes), inside
