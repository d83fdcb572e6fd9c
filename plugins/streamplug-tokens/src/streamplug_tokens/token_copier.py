"""Copying of tokens from stored documents to rows."""

from __future__ import annotations

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
    """Copies tokens of one column to rows.

    Attributes:
        documents: Reader of the documents, with only the column of tokens.
    """

    def __init__(
        self,
        stored: Reader,
        selections: StreamSelections | None,
        column: str,
        dtype: np.dtype[Any],
        padding: int,
    ) -> None:
        """Copy tokens of stored documents, of the selected ones unless `selections` is None."""
        self._stored, self._selections = stored, selections
        self.documents: SampleReader = (
            stored if selections is None else SelectedReader(stored, selections)
        )
        self._column = column
        self._dtype, self._padding = dtype, padding

    def rows(self, spans: CopySpans, count: int, width: int) -> NDArray[Any]:
        """Return rows of tokens, shape ``[count, width]``.

        Raises:
            StreamplugError: If documents cannot be fetched, are damaged, or differ from what was counted.
        """
        starts, unlocated, buffers = self._locate(spans)
        item_bytes = self._dtype.itemsize
        in_one_buffer = len(buffers) == 1 and not len(unlocated)
        if in_one_buffer and len(starts) == count and (spans.size == width).all():
            rows = buffers[0].data.gather(starts, width * item_bytes)  # each row is one span
            return rows.view(self._dtype).reshape(count, width)
        tokens = np.full(count * width, self._padding, self._dtype)
        target = memoryview(tokens.view(np.uint8))  # type: ignore[arg-type]  # an array is a buffer
        for buffer in buffers:
            places = buffer.places
            values = buffer.data.slices(starts[places], spans.size[places] * item_bytes)
            for to, value in zip((spans.target[places] * item_bytes).tolist(), values):
                target[to : to + len(value)] = value
        if len(unlocated):
            self._copy_decoded(tokens, CopySpans(*(array[unlocated] for array in spans)))
        return tokens.reshape(count, width)

    def _locate(self, spans: CopySpans) -> tuple[Int64, Int64, list[EncodedValues]]:
        """Return the first byte of each span in memory, the spans not in memory, and the memory."""
        starts = np.full(len(spans.size), -1, np.int64)
        filled = np.flatnonzero(spans.size)
        buffers = []
        try:
            documents = spans.document[filled]
            if self._selections is not None:
                documents = self._selections.rows(documents)
            for buffer in iter_encoded_values(self._stored, documents, self._column):
                places = filled[buffer.places]
                if self._has_lengths(buffer, spans.document_length[places]):
                    bytes_behind = (spans.document_length - spans.begin)[
                        places
                    ] * self._dtype.itemsize
                    starts[places] = buffer.starts + buffer.sizes - bytes_behind
                    buffers.append(buffer._replace(places=places))
        except Exception:  # noqa: BLE001 - decoding whole documents names the damaged one
            return starts, filled, []
        return starts, filled[starts[filled] < 0], buffers

    def _has_lengths(self, buffer: EncodedValues, lengths: Int64) -> bool:
        """Return whether all values are arrays of the lengths that were counted."""
        encoding = buffer.column.encoding
        if not isinstance(encoding, VectorColumn):
            return False
        if (encoding.lengths(buffer.sizes, self._dtype) != lengths).any():
            return False
        return bool(encoding.are_vectors(buffer.data, buffer.starts, lengths, self._dtype).all())

    def _copy_decoded(self, tokens: NDArray[Any], spans: CopySpans) -> None:
        """Copy spans of documents that are decoded whole."""
        documents, positions = np.unique(spans.document, return_inverse=True)
        values = self.documents.batch(documents)[self._column]
        for position, (document, begin, size, length, target) in zip(
            positions.tolist(), zip(*(array.tolist() for array in spans))
        ):
            value = self._check(values[position], document, length)
            tokens[target : target + size] = value[begin : begin + size]

    def _check(self, value: Any, document: int, length: int) -> NDArray[Any]:
        """Return the tokens of a document of the length that was counted."""
        _, shard, file, row = self.documents.locate(document)
        where = f"shard {shard} ({file}): sample {row}, column {self._column!r}"
        try:
            tokens = as_tokens(value, self._dtype)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        if len(tokens) != length:
            raise DataError(f"{where}: {len(tokens)} tokens, where {length} were counted before")
        return tokens
