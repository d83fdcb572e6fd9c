"""Arithmetic of rows: which tokens of which documents a row of one stream consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamplug.errors import DataError
from streamplug.types import Int64
from streamplug_tokens.document_offsets import DocumentOffsets, EqualLengths, ListedOffsets
from streamplug_tokens.length_cache import ArrayCache
from streamplug_tokens.options import TokenBlocks, TokenPacks
from streamplug_tokens.packing import pack_documents


class DocumentSpans(NamedTuple):
    """Parts of documents that fill rows from the left.

    Attributes:
        row: Position in the requested rows, ascending, shape ``[spans]``.
        document: Number of the document.
        begin: First token in the document.
        size: Number of tokens, at least 1.
    """

    row: Int64
    document: Int64
    begin: Int64
    size: Int64


class RowLayout(ABC):
    """The rows of one stream.

    Attributes:
        count: Number of rows.
    """

    count: int

    @abstractmethod
    def first_row_of(self, documents: Int64) -> Int64:
        """Return the number of rows that begin before documents, ascending; all for the last number."""

    @abstractmethod
    def spans(self, rows: Int64) -> DocumentSpans:
        """Return what rows consist of, in their order."""


class CrossDocumentLayout(RowLayout):
    """Rows over the concatenation of all documents."""

    def __init__(self, offsets: DocumentOffsets, options: TokenBlocks) -> None:
        self._offsets, self._stride = offsets, options.stride or options.length
        self._width = options.length + options.lookahead
        self.count = _count_windows(
            np.array([offsets.total]), self._width, self._stride, options.remainder
        )[0]

    def first_row_of(self, documents: Int64) -> Int64:
        return np.minimum(-(-self._offsets.offset_of(documents) // self._stride), self.count)

    def spans(self, rows: Int64) -> DocumentSpans:
        begin = rows * self._stride
        end = np.minimum(begin + self._width, self._offsets.total)
        first, last = self._offsets.document_at(begin), self._offsets.document_at(end - 1)
        counts = last - first + 1
        row = np.repeat(np.arange(len(rows)), counts)
        document = first[row] + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        offset = self._offsets.offset_of(document)
        low = np.maximum(begin[row] - offset, 0)
        size = np.minimum(end[row], self._offsets.offset_of(document + 1)) - offset - low
        is_filled = size > 0  # empty documents have no span
        return DocumentSpans(row[is_filled], document[is_filled], low[is_filled], size[is_filled])


class SingleDocumentLayout(RowLayout):
    """Rows that end with their document."""

    def __init__(
        self, offsets: DocumentOffsets, options: TokenBlocks, cache: ArrayCache, key: str
    ) -> None:
        self._offsets, self._stride = offsets, options.stride or options.length
        self._width = options.length + options.lookahead
        self._rows = self._row_offsets(options.remainder, cache, key)
        self.count = self._rows.total

    def _row_offsets(self, remainder: str, cache: ArrayCache, key: str) -> DocumentOffsets:
        """Return the offsets of documents counted in rows."""
        offsets = self._offsets
        if isinstance(offsets, EqualLengths):
            lengths = np.array([offsets.length])
            rows = _count_windows(lengths, self._width, self._stride, remainder)
            return EqualLengths(int(rows[0]), offsets.count)

        def compute() -> Int64:
            lengths = np.diff(offsets.offset_of(np.arange(offsets.count + 1)))
            first_rows = np.zeros(len(lengths) + 1, np.int64)
            rows = _count_windows(lengths, self._width, self._stride, remainder)
            np.cumsum(rows, out=first_rows[1:])
            return first_rows

        key = f"rows of {self._width, self._stride, remainder}, {key}"
        return ListedOffsets(cache.array(key, compute))

    def first_row_of(self, documents: Int64) -> Int64:
        return self._rows.offset_of(documents)

    def spans(self, rows: Int64) -> DocumentSpans:
        document = self._rows.document_at(rows)
        begin = (rows - self._rows.offset_of(document)) * self._stride
        length = self._offsets.offset_of(document + 1) - self._offsets.offset_of(document)
        size = np.minimum(self._width, length - begin)
        return DocumentSpans(np.arange(len(rows)), document, begin, size)


class PackedLayout(RowLayout):
    """Rows of documents that are packed together."""

    def __init__(
        self,
        offsets: DocumentOffsets,
        options: TokenPacks,
        cache: ArrayCache,
        key: str,
        describe: Callable[[int], str],
    ) -> None:
        """Pack documents, or map the result of an earlier time; `describe` names a document.

        Raises:
            DataError: If a document is longer than a row, and `long_documents` is ``"raise"``.
        """
        self._offsets, self._width = offsets, options.length
        group, long_documents = options.documents_per_group, options.long_documents

        def compute() -> Int64:
            all_offsets = offsets.offset_of(np.arange(offsets.count + 1))
            if long_documents == "raise":
                _check_lengths(all_offsets, options, describe)
            return pack_documents(all_offsets, options.length, group, long_documents)

        # Pickled, the whole array is mapped again from its file; slices of it would be copied.
        kind = "" if long_documents == "split" else f"{long_documents} long documents, "
        self._packing = cache.array(f"packs of {group} into {options.length}, {kind}{key}", compute)
        self.count = int(self._packing[0])

    @property
    def _bounds(self) -> Int64:
        """First span of each row, and the number of spans."""
        return np.asarray(self._packing)[1 : self.count + 2]

    @property
    def _span_offsets(self) -> Int64:
        return np.asarray(self._packing)[self.count + 2 :]

    def first_row_of(self, documents: Int64) -> Int64:
        row_offsets = self._span_offsets[self._bounds[:-1]]  # ascending
        rows: Int64 = np.searchsorted(row_offsets, self._offsets.offset_of(documents))
        return rows

    def spans(self, rows: Int64) -> DocumentSpans:
        counts = self._bounds[rows + 1] - self._bounds[rows]
        row = np.repeat(np.arange(len(rows)), counts)
        span_in_row = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        offset = self._span_offsets[self._bounds[rows][row] + span_in_row]
        document = self._offsets.document_at(offset)
        begin = offset - self._offsets.offset_of(document)
        length = self._offsets.offset_of(document + 1) - self._offsets.offset_of(document)
        return DocumentSpans(row, document, begin, np.minimum(self._width, length - begin))


def _check_lengths(offsets: Int64, options: TokenPacks, describe: Callable[[int], str]) -> None:
    lengths = np.diff(offsets)
    too_long = np.flatnonzero(lengths > options.length)
    if len(too_long):
        document = int(too_long[0])
        raise DataError(
            f"{describe(document)}: {lengths[document]} tokens, with the separator if there is one, are more "
            f"than length={options.length}; {len(too_long)} documents are too long: give a larger "
            "length=, or long_documents='split', 'truncate' or 'drop'"
        )


def _count_windows(lengths: Int64, width: int, stride: int, remainder: str) -> Int64:
    """Return the number of windows over sequences of some lengths."""
    full = np.where(lengths < width, 0, 1 + (lengths - width) // stride)
    if remainder == "drop":
        return full
    covered = np.where(full > 0, (full - 1) * stride + width, 0)
    return full + (lengths > covered)
