"""Reading of token rows by row number, through the interface of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamplug.read import Need, WrappedReader, slice_columns
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_tokens.document_offsets import DocumentOffsets
from streamplug_tokens.options import TokenRowOptions
from streamplug_tokens.row_columns import ExtraColumns, shift_left
from streamplug_tokens.row_layout import DocumentSpans, RowLayout
from streamplug_tokens.token_copier import CopySpans, TokenCopier


@dataclass(frozen=True, slots=True)
class DocumentSpan:
    """Part of a document in a row of tokens.

    Attributes:
        offset: Position in the row of its first token.
        document: Number of the document: a sample of the data set, numbered over all streams.
        begin: First token in the document.
        end: Token after the last one in the document.
        separator: Whether the separator follows, which takes one more token of the row.
        stream: Number of the document's stream.
        shard: Number of its shard in that stream.
        file: Base name of the shard's raw file.
        index: Position in the shard.
    """

    offset: int
    document: int
    begin: int
    end: int
    separator: bool
    stream: int
    shard: int
    file: str
    index: int


class RowReader(WrappedReader):
    """Reads rows of tokens; see `streamplug.read.SampleReader`.

    Attributes:
        starts: First row of each shard over all streams, and the total; a row belongs to the shard of its
            first token.
        stream_shards: First shard of each stream, and the total.
        prefetch_limits: Limits of the prefetch window.
        decodes_lazily: Whether batches are decoded one by one.
        cache_limit: Bytes of the smallest cache limit; None is unlimited.
    """

    def __init__(
        self,
        copier: TokenCopier,
        options: TokenRowOptions,
        layouts: Sequence[RowLayout],
        offsets: Sequence[DocumentOffsets],
    ) -> None:
        """Take what rows are read from.

        Args:
            copier: Reader of the documents and copier of their tokens.
            options: What rows consist of.
            layouts: Rows of each stream.
            offsets: Document offsets of each stream.
        """
        documents = copier.documents
        super().__init__(documents)
        self._options, self.decodes_lazily = options, False
        self._copier = copier
        self._layouts, self._offsets = list(layouts), list(offsets)
        first_documents = np.asarray(documents.starts)
        self._first_documents = first_documents[self.stream_shards]
        counts = [layout.count for layout in self._layouts]
        self._first_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        starts = []
        for stream, layout in enumerate(self._layouts):
            shards = slice(self.stream_shards[stream], self.stream_shards[stream + 1])
            documents_in_stream = first_documents[shards] - self._first_documents[stream]
            starts.append(layout.first_row_of(documents_in_stream) + self._first_rows[stream])
        self.starts: Int64 = np.concatenate([*starts, self._first_rows[-1:]])

    # -- prefetching ------------------------------------------------------------------

    def needs(self, ids: Int64) -> list[Need]:
        """Return what must be fetched to read rows."""
        return self._reader.needs(self._spans(ids)[0].document)

    # -- reading ----------------------------------------------------------------------

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return the stream, shard, file and position in the shard of a row's first document."""
        document = self._spans(np.array([sample_id]))[0].document[0]
        return self._reader.locate(int(document))

    def describe(self, sample_id: int) -> str:
        """Return what errors call a row's first document."""
        document = self._spans(np.array([sample_id]))[0].document[0]
        return self._reader.describe(int(document))

    def document_spans(self, row: int) -> list[DocumentSpan]:
        """Return the parts of documents of a row, from the left."""
        spans, document_lengths = self._spans(np.array([row]))
        row_spans, offset = [], 0
        columns = (spans.document, spans.begin, spans.size, document_lengths)
        for document, begin, size, length in zip(*(column.tolist() for column in columns)):
            size_in_row = min(size, self._options.length - offset)  # without the lookahead
            if size_in_row <= 0:
                break
            is_closed = self._options.separator is not None and begin + size_in_row == length
            end = begin + size_in_row - is_closed
            place = self._reader.locate(document)
            row_spans.append(DocumentSpan(offset, document, begin, end, is_closed, *place))
            offset += size_in_row
        return row_spans

    def row(self, sample_id: int) -> Sample:
        """Return one row."""
        return self.rows(np.array([sample_id]))[0]

    def rows(self, ids: Int64) -> list[Sample]:
        """Return rows, each a dict of arrays of shape ``[length]``."""
        columns = self.batch(ids)
        return [dict(zip(columns, values)) for values in zip(*columns.values())]

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return rows, each column an array of shape ``[rows, length]``."""
        spans, document_lengths = self._spans(ids)
        options, length = self._options, self._options.length
        width = length + options.lookahead
        targets = _span_targets(spans, len(ids), width)
        stored_lengths = document_lengths - (options.separator is not None)
        sizes = np.minimum(spans.size, stored_lengths - spans.begin)
        copies = CopySpans(spans.document, spans.begin, sizes, stored_lengths, targets)
        copied = self._copier.rows(copies, len(ids), width)
        tokens = copied[options.column]
        if options.separator is not None:
            is_closed = spans.begin + spans.size == document_lengths
            tokens.reshape(-1)[(targets + spans.size - 1)[is_closed]] = options.separator
        columns: dict[str, ColumnValues]
        columns = {name: values[:, :length] for name, values in copied.items()}
        if "targets" in options.extras:
            columns["targets"] = shift_left(tokens, length, options.padding)
        if set(options.extras) - {"targets"}:
            columns |= self._extra_columns(ExtraColumns(spans, targets, len(ids), width))
        names = (options.column, *options.columns, *options.extras)
        return {name: columns[name] for name in names}

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of rows, read at once."""
        return slice_columns(self.batch(ids), parts)

    def _extra_columns(self, extras: ExtraColumns) -> dict[str, ColumnValues]:
        names, length = self._options.extras, self._options.length
        columns: dict[str, ColumnValues] = {}
        if "documents" in names:
            columns["documents"] = extras.documents()[:, :length]
        positions = extras.positions()
        columns["positions"] = positions[:, :length]
        if "mask" in names:
            mask = extras.mask(positions)
            columns["mask"] = shift_left(mask, length, False) if "targets" in names else mask
        return columns

    def _spans(self, ids: Int64) -> tuple[DocumentSpans, Int64]:
        """Return what rows consist of, and the length of the document of each span.

        Documents are numbered over all streams.
        """
        streams = np.searchsorted(self._first_rows, ids, side="right") - 1
        parts: list[tuple[Int64, ...]] = []
        for stream in np.unique(streams).tolist():
            positions = np.flatnonzero(streams == stream)
            spans = self._layouts[stream].spans(ids[positions] - self._first_rows[stream])
            offsets, document = self._offsets[stream], spans.document
            length = offsets.offset_of(document + 1) - offsets.offset_of(document)
            document = document + self._first_documents[stream]
            parts.append((positions[spans.row], document, spans.begin, spans.size, length))
        if len(parts) != 1:
            empty = [(np.empty(0, np.int64),) * 5]
            joined = [np.concatenate(arrays) for arrays in zip(*(parts or empty))]
            order = np.argsort(joined[0], kind="stable")
            parts = [tuple(array[order] for array in joined)]
        *columns, lengths = parts[0]
        return DocumentSpans(*columns), lengths


def _span_targets(spans: DocumentSpans, count: int, width: int) -> Int64:
    """Return the offset of each span in the tokens of `count` rows of `width`."""
    offsets = np.cumsum(spans.size) - spans.size
    filled = np.bincount(spans.row, spans.size, count).astype(np.int64)
    padding_before = np.arange(count) * width - (np.cumsum(filled) - filled)
    targets: Int64 = offsets + padding_before[spans.row]
    return targets
