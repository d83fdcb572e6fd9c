"""The data set of token rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from xxhash import xxh64

from streamplug.config import is_integer, suggest_keywords
from streamplug.dataset import StreamingDataset
from streamplug.errors import ConfigError
from streamplug.index import shards_digest
from streamplug.plan import DatasetFingerprint, StreamSelections
from streamplug.read import Reader, SampleReader
from streamplug.source import OpenSources, OpenStream
from streamplug_tokens.column_dtype import TOKENS, column_dtype
from streamplug_tokens.document_offsets import DocumentOffsets
from streamplug_tokens.length_cache import ArrayCache
from streamplug_tokens.lengths import (
    all_documents,
    decoder_key,
    read_document_offsets,
)
from streamplug_tokens.number_lists import with_number_lists
from streamplug_tokens.options import TokenBlocks, TokenPacks, options_from_state, options_to_state
from streamplug_tokens.row_fingerprint import RowFingerprint
from streamplug_tokens.row_layout import (
    CrossDocumentLayout,
    PackedLayout,
    RowLayout,
    SingleDocumentLayout,
)
from streamplug_tokens.row_reader import DocumentSpan, RowReader
from streamplug_tokens.token_columns import TokenColumn, further_columns
from streamplug_tokens.token_copier import TokenCopier

_BATCHING_METHODS = ("random", "per_stream", "stratified", "device_per_stream")
"""Those whose batches have one size."""


@suggest_keywords
class TokenDataset(StreamingDataset):
    """Rows of tokens of one length, made of the selected documents of a data set while it is read.

    A row takes the place of a sample: rows are shuffled, mixed, partitioned among ranks, counted by
    `batch_size` and by states, and explained. Each is a dict of arrays of shape ``[length]``, each batch one
    of shape ``[batch, length]``: the tokens by the name of their column, and the extra columns by theirs.

    The constructor counts the tokens of each document, once for a cache: from shard headers where these
    have the lengths, else by decoding all documents.

    Args:
        tokens: What rows consist of.
        **kwargs: As for `StreamingDataset`, but `columns`, which is an option of the rows.

    Raises:
        StreamplugError: If an argument is invalid, or the tokens cannot be counted.
    """

    def __init__(self, *, tokens: TokenBlocks | TokenPacks, **kwargs: Any) -> None:
        if not isinstance(tokens, TokenBlocks | TokenPacks):
            raise ConfigError(f"tokens={tokens!r}: expected TokenBlocks(...) or TokenPacks(...)")
        if kwargs.get("columns") is not None:
            raise ConfigError(
                f"columns={kwargs['columns']!r}: rows are of the column {tokens.column!r}; name further "
                "columns that have one number for each token in columns= of tokens="
            )
        method = kwargs.get("batching_method", "random")
        if method not in _BATCHING_METHODS:
            raise ConfigError(
                f"batching_method={method!r}: rows of tokens have one length; give batch_size= and one of "
                f"{', '.join(_BATCHING_METHODS)}"
            )
        self.tokens = tokens
        super().__init__(**{**kwargs, "columns": [tokens.column, *tokens.columns]})

    @classmethod
    def from_state_tokens(cls, saved: Any, **kwargs: Any) -> TokenDataset:
        """Return a data set with the rows of the run that saved a state.

        Args:
            saved: What the state has under ``tokens``.
            **kwargs: As for the class.

        Raises:
            StateError: If it describes no rows of tokens.
        """
        return cls(tokens=options_from_state(saved), **kwargs)

    def make_reader(self, opened: OpenSources, columns: Sequence[str] | None) -> SampleReader:
        """Return the reader of rows of the documents of some streams."""
        options, sources = self.tokens, opened
        opened = with_number_lists(opened.stored(options.column), options)
        dtypes = [
            column_dtype(stream, options.column, options.dtype, option="dtype", kind=TOKENS)
            for stream in opened
            if len(stream.index)  # an index without shards has no columns
        ]
        if not dtypes:
            raise ConfigError(f"{opened[0].where}: there are no samples to make rows of tokens of")
        if len(set(dtypes)) > 1:
            names = [dtype.name for dtype in dtypes]
            raise ConfigError(
                f"the streams have tokens of different dtypes, {names}: write them alike"
            )
        dtype, extra = dtypes[0], int(options.separator is not None)
        options.check(dtype)
        token_columns = [TokenColumn(options.column, dtype, options.padding)]
        token_columns += further_columns(sources, options)
        offsets, layouts = [], []
        for stream in opened:
            cache, key = ArrayCache(stream), f"{options.column!r} {dtype.str} {extra}"
            key += decoder_key(stream, options.column, dtype)
            if stream.selection is not None:
                key = f"{key} of {stream.selection.digest}"
            if options.lengths is not None:
                key = f"{key} by {options.lengths!r}"
            counted = read_document_offsets(
                stream, cache, options.column, dtype, extra=extra, length_column=options.lengths
            )
            offsets.append(counted)
            layouts.append(_row_layout(options, counted, cache, key, stream))
        # After the counting, which opens shards of its own.
        stored = Reader(
            [stream.index.starts for stream in opened],
            [all_documents(stream).shards(columns) for stream in opened],
        )
        selections = None
        if any(stream.selection is not None for stream in opened):
            sizes = [stream.index.size for stream in opened]
            selections = StreamSelections([stream.selection for stream in opened], sizes)
        copier = TokenCopier(stored, selections, token_columns)
        return RowReader(copier, options, layouts, offsets)

    def document_spans(self, row: int) -> list[DocumentSpan]:
        """Return the parts of documents that a row consists of, from the left, without reading them.

        Args:
            row: Number of the row, which `explain` calls a sample.

        Raises:
            ConfigError: If there is no such row.
        """
        if not is_integer(row) or not 0 <= row < self.size:
            raise ConfigError(f"row={row!r:.60}: there are the rows 0 to {self.size - 1}")
        return cast(RowReader, self.session.reader).document_spans(row)

    def make_fingerprint(self, opened: OpenSources) -> DatasetFingerprint:
        """Return what tells these rows from others in states."""
        documents = super().make_fingerprint(opened.stored(self.tokens.column))
        rows = shards_digest(self._reader.starts)
        key = f"{documents.digest} {rows} {self.tokens.row_key()}"
        digest = xxh64(key.encode()).hexdigest()
        return RowFingerprint.of(documents, digest, options_to_state(self.tokens))


def _row_layout(
    options: TokenBlocks | TokenPacks,
    offsets: DocumentOffsets,
    cache: ArrayCache,
    key: str,
    stream: OpenStream,
) -> RowLayout:
    if isinstance(options, TokenPacks):
        describe = partial(_describe_document, stream, options.column)
        return PackedLayout(offsets, options, cache, key, describe)
    if options.cross_documents:
        return CrossDocumentLayout(offsets, options)
    return SingleDocumentLayout(offsets, options, cache, key)


def _describe_document(stream: OpenStream, column: str, document: int) -> str:
    """Return what errors call a document of a stream, one of the selected ones."""
    row = document
    if stream.selection is not None:
        row = int(stream.selection.rows(np.array([document]))[0])
    starts = stream.index.starts
    shard = int(np.searchsorted(starts, row, side="right")) - 1
    file = stream.index.shard(shard).basename
    where = f"shard {shard} ({file}): sample {row - int(starts[shard])}"
    return f"{stream.where}: {where}, column {column!r}"
