"""Bounds of the memory that row groups take when they are decoded, from the headers of their pages.

Sizes in footers are not used: nothing holds the author of a file to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamplug.errors import CorruptShardError
from streamplug_parquet.budget import VARIABLE, budget
from streamplug_parquet.column_chunks import ColumnChunks
from streamplug_parquet.file_bytes import SparseView
from streamplug_parquet.page_headers import Page, parse_pages
from streamplug_parquet.page_values import count_missing, count_prefix_bytes, max_text_bytes
from streamplug_parquet.thrift import Chunk

MIN_LIMIT_BYTES, MAX_EXPANSION = 1 << 30, 100
"""Bytes that are always permitted; ratio of decoded to stored bytes that is."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 8, "INT64": 8, "INT96": 16, "FLOAT": 4, "DOUBLE": 8}
_TEXT_OVERHEAD_BYTES = 32  # of a value: its offset, and where it starts and ends


def decoded_limit(stored: int) -> int:
    """Return the bytes that `stored` bytes may become when they are decoded."""
    return max(MAX_EXPANSION * stored, MIN_LIMIT_BYTES, budget.limit)


def too_large(what: str, size: int, limit: int) -> CorruptShardError:
    """Return the error for something that is larger than the limit when it is decoded."""
    return CorruptShardError(
        f"{what}: the values take up to {size} bytes when decoded, more than the limit of {limit}; if you "
        f"trust the file, read fewer columns with columns=, or set {VARIABLE}={size}"
    )


@dataclass(frozen=True)
class ReadPlan:
    """How to read columns of a row group.

    Attributes:
        dictionaries: Paths of leaf columns to read as dictionaries.
        size: Maximum bytes of the columns, with these as dictionaries.
        limit: Bytes that they may take.
    """

    dictionaries: Sequence[str]
    size: int
    limit: int

    def check_expansion(self, size: int, what: str) -> None:
        """Refuse dictionaries that take `size` bytes more when they are replaced by their values.

        Raises:
            CorruptShardError: If that is more than the limit.
        """
        if self.size + size > self.limit:
            raise too_large(what, self.size + size, self.limit)


@dataclass(frozen=True)
class _Leaf:
    """A leaf column of a row group.

    Attributes:
        path: Name with those of the columns around it.
        rows: Number of rows of the row group.
        width: Bytes of a value; None for text and bytes.
        levels: Maximum repetition level and definition level.
        slots: Values that Arrow allocates for a missing list of one size.
        is_inside_list: Whether this list is itself in a list of any size.
        chunk: The column chunk.
        pages: Its pages of values.
        dictionary: The page of its dictionary.
    """

    path: str
    rows: int
    width: int | None
    levels: tuple[int, int]
    slots: int
    is_inside_list: bool
    chunk: Chunk
    pages: Sequence[Page]
    dictionary: Page | None

    @property
    def values(self) -> int:
        """Number of values, with missing ones."""
        return max(sum(page.values for page in self.pages), self.rows)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a value besides its content, if that has no fixed size."""
        return _TEXT_OVERHEAD_BYTES if self.width is None else self.width

    @property
    def dictionary_size(self) -> int:
        """Bytes of the dictionary."""
        return 0 if self.dictionary is None else self.dictionary.max_bytes

    @property
    def is_dictionary(self) -> bool:
        """Whether the leaf column has repeated text, and Arrow can read it as a dictionary."""
        return (
            self.width is None
            and any(page.repeats_values for page in self.pages)
            and not any(page.shares_prefixes for page in self.pages)
        )

    def min_size(self) -> int:
        """Return the bytes without repeated text and what missing lists take."""
        repetitions, definitions = self.levels
        levels = 4 * repetitions + 2 * bool(repetitions) + 2 * bool(definitions)
        sizes = [page.max_bytes for page in self.pages]
        content = sum(sizes) if self.width is None else max(sizes, default=0)
        slots = self.values
        if self.slots > 1 and not self.is_inside_list:
            slots += self.rows * self.slots
        return self.values * levels + slots * self.slot_bytes + content + self.dictionary_size

    def max_expansion(self) -> int:
        """Return the maximum bytes that the leaf column takes beyond `min_size`."""
        size = 0
        if self.width is None:
            for page in self.pages:
                size += page.values * self.dictionary_size if page.repeats_values else 0
                size += page.values * page.max_bytes if page.shares_prefixes else 0
        if self.slots > 1 and self.is_inside_list and self.levels[1]:
            size += self.values * self.slots * self.slot_bytes
        return size

    def measure_expansion(self, data: memoryview | SparseView) -> int:
        """Return the bytes beyond `min_size` as a dictionary; reads pages of the file in `data`."""
        codec, size = self.chunk.codec, 0
        if self.width is None and not self.is_dictionary and self.dictionary is not None:
            repeated = sum(page.values for page in self.pages if page.repeats_values)
            size += repeated * max_text_bytes(data, self.dictionary, codec)
        for page in self.pages:
            if self.width is None and page.shares_prefixes:
                size += count_prefix_bytes(data, page, codec, self.levels)
            if self.slots > 1 and self.is_inside_list and self.levels[1]:
                missing = count_missing(data, page, codec, self.levels)
                size += missing * self.slots * self.slot_bytes
        return size


class DecodedSizes:
    """Bounds of the decoded sizes of the row groups of a file."""

    def __init__(self, data: memoryview | SparseView, chunks: ColumnChunks) -> None:
        """Take a file, of which `data` has at least the column chunks that are to be read."""
        self._data, self._chunks = data, chunks

    def plan(self, group: int, names: Sequence[str]) -> ReadPlan:
        """Return how to read columns of a row group.

        Raises:
            CorruptShardError: If they would take too much memory, or are damaged.
        """
        leaves = list(self._leaves(group, names))
        stored = min(sum(leaf.chunk.stored for leaf in leaves), len(self._data))
        limit, what = decoded_limit(stored), describe(group, names)
        size = sum(leaf.min_size() for leaf in leaves)
        expansion = sum(leaf.max_expansion() for leaf in leaves)
        if size + expansion <= limit:
            return ReadPlan([], size + expansion, limit)
        if size > limit:
            raise too_large(what, size, limit)
        dictionaries = [leaf.path for leaf in leaves if leaf.is_dictionary]
        if len({*dictionaries}) < len(dictionaries):
            raise CorruptShardError(f"{what}: two columns have one path")
        with naming(what):
            size += sum(leaf.measure_expansion(self._data) for leaf in leaves)
        if size > limit:
            raise too_large(what, size, limit)
        return ReadPlan(dictionaries, size, limit)

    def _leaves(self, group: int, names: Sequence[str]) -> Iterator[_Leaf]:
        rows = self._chunks.count_rows(group)
        for column, slots, is_inside, chunk in self._chunks.of(group, names):
            path = column.path
            kind = column.physical_type
            width = None if kind == "BYTE_ARRAY" else _WIDTHS.get(kind) or max(column.length, 16)
            levels = column.max_repetition_level, column.max_definition_level
            with naming(describe(group, [path])):
                pages = list(parse_pages(self._data, chunk))
            dictionary = None
            if pages and pages[0].is_dictionary:
                dictionary, *pages = pages
            if any(page.is_dictionary for page in pages):
                raise CorruptShardError(f"{describe(group, [path])}: it has several dictionaries")
            yield _Leaf(path, rows, width, levels, slots, is_inside, chunk, pages, dictionary)


def describe(group: int, names: Sequence[str]) -> str:
    """Return the name of columns of a row group in errors."""
    if len(names) == 1:
        return f"row group {group}, column {names[0]!r}"
    return f"row group {group}, columns {', '.join(map(repr, names)):.200}"


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Let errors begin with the name of what is damaged."""
    try:
        yield
    except CorruptShardError as error:
        raise CorruptShardError(f"{what}: {error}") from error


def expanded_size(array: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes that the dictionaries in an array take when they are replaced by their values."""
    if isinstance(array, pa.ChunkedArray):
        return sum(map(expanded_size, array.chunks))
    type_ = array.type
    if pa.types.is_dictionary(type_):
        lengths = pc.binary_length(array.dictionary).fill_null(0).to_numpy()
        counts = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(lengths))
        return int(lengths @ counts[: len(lengths)]) if len(lengths) else 0
    if isinstance(array, pa.ExtensionArray):
        return expanded_size(array.storage)
    if pa.types.is_struct(type_):
        return sum(expanded_size(array.field(number)) for number in range(type_.num_fields))
    if pa.types.is_map(type_):
        return expanded_size(array.keys) + expanded_size(array.items)
    return expanded_size(array.values) if pa.types.is_nested(type_) else 0
