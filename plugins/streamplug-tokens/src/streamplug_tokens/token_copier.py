"""Copying of tokens, and of what else there is for each, from stored documents to rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamplug.errors import DataError
from streamplug.interfaces import VectorColumn
from streamplug.plan import StreamSelections
from streamplug.read import Reader, SampleReader, SelectedReader
from streamplug.types import Int64
from streamplug_tokens.encoded_values import EncodedValues, iter_encoded_values
from streamplug_tokens.lengths import as_tokens
from streamplug_tokens.token_columns import TokenColumn


class CopySpans(NamedTuple):
    """Parts of documents, and where they are copied to.

    Attributes:
        document: Number of the document over all streams, shape ``[spans]``.
        begin: First token in the document.
        size: Number of tokens, at least 0.
        document_length: Tokens of the whole document, as they were counted.
        target: Offset in the tokens of all rows.
    """

    document: Int64
    begin: Int64
    size: Int64
    document_length: Int64
    target: Int64


class TokenCopier:
    """Copies values of columns that have one for each token to rows.

    Attributes:
        documents: Reader of the documents, with only these columns.
    """

    def __init__(
        self, stored: Reader, selections: StreamSelections | None, columns: Sequence[TokenColumn]
    ) -> None:
        """Copy values of stored documents, of the selected ones unless `selections` is None.

        The first column has the tokens, which were counted.
        """
        self._stored, self._selections = stored, selections
        self.documents: SampleReader = (
            stored if selections is None else SelectedReader(stored, selections)
        )
        self._columns = list(columns)

    def rows(self, spans: CopySpans, count: int, width: int) -> dict[str, NDArray[Any]]:
        """Return rows of each column, shape ``[count, width]``.

        Raises:
            StreamplugError: If documents cannot be fetched, are damaged, or differ from what was counted.
        """
        rows: dict[str, NDArray[Any]] = {}
        to_decode: list[tuple[TokenColumn, Int64]] = []
        for column in self._columns:
            rows[column.name], unlocated = self._copy_located(column, spans, count, width)
            if len(unlocated):
                to_decode.append((column, unlocated))
        if to_decode:
            self._copy_decoded(rows, to_decode, spans)
        return rows

    def _copy_located(
        self, column: TokenColumn, spans: CopySpans, count: int, width: int
    ) -> tuple[NDArray[Any], Int64]:
        """Return rows with the spans that are in memory, and the positions of the other spans."""
        starts, unlocated, buffers = self._locate(column, spans)
        item_bytes = column.dtype.itemsize
        in_one_buffer = len(buffers) == 1 and not len(unlocated)
        if in_one_buffer and len(starts) == count and (spans.size == width).all():
            rows = buffers[0].data.gather(starts, width * item_bytes)  # each row is one span
            return rows.view(column.dtype).reshape(count, width), unlocated
        values = np.full(count * width, column.padding, column.dtype)
        target = memoryview(values.view(np.uint8))  # type: ignore[arg-type]  # an array is a buffer
        for buffer in buffers:
            places = buffer.places
            slices = buffer.data.slices(starts[places], spans.size[places] * item_bytes)
            for to, value in zip((spans.target[places] * item_bytes).tolist(), slices):
                target[to : to + len(value)] = value
        return values.reshape(count, width), unlocated

    def _locate(
        self, column: TokenColumn, spans: CopySpans
    ) -> tuple[Int64, Int64, list[EncodedValues]]:
        """Return the first byte of each span in memory, the spans not in memory, and the memory."""
        starts = np.full(len(spans.size), -1, np.int64)
        filled = np.flatnonzero(spans.size)
        buffers = []
        try:
            documents = spans.document[filled]
            if self._selections is not None:
                documents = self._selections.rows(documents)
            for buffer in iter_encoded_values(self._stored, documents, column.name):
                places = filled[buffer.places]
                lengths = spans.document_length[places]
                if _has_lengths(buffer, lengths, column.dtype):
                    bytes_behind = (lengths - spans.begin[places]) * column.dtype.itemsize
                    starts[places] = buffer.starts + buffer.sizes - bytes_behind
                    buffers.append(buffer._replace(places=places))
        except Exception:  # noqa: BLE001 - decoding whole documents names the damaged one
            return starts, filled, []
        return starts, filled[starts[filled] < 0], buffers

    def _copy_decoded(
        self,
        rows: dict[str, NDArray[Any]],
        to_decode: Sequence[tuple[TokenColumn, Int64]],
        spans: CopySpans,
    ) -> None:
        """Copy spans of documents that are decoded whole: for each column, those at some positions."""
        positions = np.concatenate([unlocated for _, unlocated in to_decode])
        documents = np.unique(spans.document[positions])
        decoded = self.documents.batch(documents)
        for column, unlocated in to_decode:
            values, target_row = decoded[column.name], rows[column.name].reshape(-1)
            number_of = np.searchsorted(documents, spans.document[unlocated])
            parts = zip(*(array[unlocated].tolist() for array in spans))
            for number, (document, begin, size, length, target) in zip(number_of.tolist(), parts):
                value = self._check(column, values[number], document, length)
                target_row[target : target + size] = value[begin : begin + size]

    def _check(self, column: TokenColumn, value: Any, document: int, length: int) -> NDArray[Any]:
        """Return the numbers of a document, of which there are as many as tokens were counted."""
        _, shard, file, row = self.documents.locate(document)
        where = f"shard {shard} ({file}): sample {row}, column {column.name!r}"
        tokens = self._columns[0]
        try:
            numbers = as_tokens(value, column.dtype)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if len(numbers) == length:
            return numbers
        if column is tokens:
            raise DataError(f"{where}: {len(numbers)} tokens, where {length} were counted before")
        raise DataError(
            f"{where}: {len(numbers)} numbers for the {length} tokens in column {tokens.name!r}; write one "
            "for each token, or leave the column out of columns="
        )


def _has_lengths(buffer: EncodedValues, lengths: Int64, dtype: np.dtype[Any]) -> bool:
    """Return whether all values are arrays of the lengths that were counted."""
    encoding = buffer.column.encoding
    if not isinstance(encoding, VectorColumn):
        return False
    if (encoding.lengths(buffer.sizes, dtype) != lengths).any():
        return False
    return bool(encoding.are_vectors(buffer.data, buffer.starts, lengths, dtype).all())
