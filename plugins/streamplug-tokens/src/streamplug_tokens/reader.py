"""Reads rows of tokens by id, as samples of a data set that nobody wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamplug.read import Reader
from streamplug.read.gather import slice_columns
from streamplug.read.sample_range import FetchGroup
from streamplug.types import ColumnValues, Int64, Sample
from streamplug_tokens.copying import Copier, Parts
from streamplug_tokens.ends import Ends
from streamplug_tokens.extras import Extras, following
from streamplug_tokens.rows import Pieces, Rows
from streamplug_tokens.views import TokenRows


@dataclass(frozen=True, slots=True)
class RowPiece:
    """A part of a document in a row of tokens.

    Attributes:
        offset: Where in the row it begins, in tokens.
        document: The document: a sample of the data set, numbered over all streams.
        begin: Its first token in that document.
        end: The token after its last one.
        separator: Whether the separator follows it, which takes one more token of the row.
        stream: Number of the document's stream.
        shard: Number of its shard in that stream.
        file: Base name of the shard's raw file.
        index: Its place in the shard.
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


class TokenReader:
    """Reads rows; see `streamplug.read.SampleReader`.

    Attributes:
        starts: First row of each shard over all streams, and the total: a row is of the shard in which its
            first token lies.
        stream_shards: First shard of each stream, and the total.
        ranged: Whether all streams are read by ranges.
        in_turn: Whether batches are decoded one by one.
        cache_limit: Bytes that the smallest limit of a cache allows; None if there is no limit.
    """

    def __init__(
        self,
        documents: Reader,
        view: TokenRows,
        dtype: np.dtype[Any],
        rows: Sequence[Rows],
        ends: Sequence[Ends],
    ) -> None:
        """Read the rows of `view`.

        Args:
            documents: Reads the documents, and of these the view's column only.
            view: What is asked for.
            dtype: Of the tokens.
            rows: What the rows of each stream are made of.
            ends: Where the documents of each stream end.
        """
        self._documents, self._view, self.in_turn = documents, view, False
        self._copier = Copier(documents, view.column, dtype, view.padding)
        self._rows, self._ends = list(rows), list(ends)
        self.stream_shards = documents.stream_shards
        self.ranged, self.cache_limit = documents.ranged, documents.cache_limit
        of = np.asarray(documents.starts)
        self._first_documents = of[self.stream_shards]
        counts = [each.count for each in self._rows]
        self._first_rows = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        parts = [
            rows.starts(of[first:last] - of[first]) + before
            for rows, first, last, before in zip(
                self._rows, self.stream_shards, self.stream_shards[1:], self._first_rows.tolist()
            )
        ]
        self.starts: Int64 = np.concatenate([*parts, self._first_rows[-1:]])

    # -- fetching ahead ---------------------------------------------------------------

    def needs(self, ids: Int64) -> list[int | FetchGroup]:
        """Return what must be there to read some rows."""
        return self._documents.needs(self._pieces(ids)[0].document)

    def weight(self, need: int | FetchGroup) -> int:
        """Return about how many bytes a need has."""
        return self._documents.weight(need)

    def ensure(self, need: int | FetchGroup) -> None:
        """Fetch a shard or a piece of one."""
        self._documents.ensure(need)

    def claim(self, need: int | FetchGroup) -> None:
        """Have a shard stay open."""
        self._documents.claim(need)

    def release(self, need: int | FetchGroup) -> None:
        """Have it stay no longer."""
        self._documents.release(need)

    def file_of(self, need: int | FetchGroup) -> tuple[int, str]:
        """Return which shard a need is, or is of, and the name of that one's first file."""
        return self._documents.file_of(need)

    # -- reading ----------------------------------------------------------------------

    def locate(self, sample_id: int) -> tuple[int, int, str, int]:
        """Return where the first document of a row lies: stream, shard, its file, and place in it."""
        document = self._pieces(np.array([sample_id]))[0].document[0]
        return self._documents.locate(int(document))

    def pieces(self, row: int) -> list[RowPiece]:
        """Return which parts of which documents make up a row, from the left on."""
        found, lengths = self._pieces(np.array([row]))
        pieces, at, width = [], 0, self._view.length
        columns = (found.document, found.begin, found.size, lengths)
        for document, begin, whole, length in zip(*(column.tolist() for column in columns)):
            size = min(whole, width - at)  # what is read ahead for targets is no part of the row
            if size <= 0:
                break
            closed = self._view.separator is not None and begin + size == length
            end = begin + size - closed
            place = self._documents.locate(document)
            pieces.append(RowPiece(at, document, begin, end, closed, *place))
            at += size
        return pieces

    def row(self, sample_id: int) -> Sample:
        """Return one row."""
        return self.rows(np.array([sample_id]))[0]

    def rows(self, ids: Int64) -> list[Sample]:
        """Return many rows, each a dict of arrays of shape ``[length]``."""
        columns = self.batch(ids)
        return [dict(zip(columns, values)) for values in zip(*columns.values())]

    def batch(self, ids: Int64) -> dict[str, ColumnValues]:
        """Return many rows, each column an array of shape ``[rows, length]``."""
        pieces, lengths = self._pieces(ids)
        view, length = self._view, self._view.length
        width = length + view.ahead
        at = _places(pieces, len(ids), width)
        stored = lengths - (view.separator is not None)
        sizes = np.minimum(pieces.size, stored - pieces.begin)
        parts = Parts(pieces.document, pieces.begin, sizes, stored, at)
        tokens = self._copier.rows(parts, len(ids), width)
        if view.separator is not None:
            closed = pieces.begin + pieces.size == lengths
            tokens.reshape(-1)[(at + pieces.size - 1)[closed]] = view.separator
        found: dict[str, ColumnValues] = {view.column: tokens[:, :length]}
        if "targets" in view.extras:
            found["targets"] = following(tokens, length, view.padding)
        if set(view.extras) - {"targets"}:
            found |= self._extras(Extras(pieces, at, len(ids), width))
        return {name: found[name] for name in (view.column, *view.extras)}

    def batches(self, ids: Int64, parts: Sequence[slice]) -> Iterator[dict[str, ColumnValues]]:
        """Return batches of rows, read at once."""
        return slice_columns(self.batch(ids), parts)

    def _extras(self, extras: Extras) -> dict[str, ColumnValues]:
        wanted, length = self._view.extras, self._view.length
        found: dict[str, ColumnValues] = {}
        if "documents" in wanted:
            found["documents"] = extras.documents()[:, :length]
        positions = extras.positions()
        found["positions"] = positions[:, :length]
        if "mask" in wanted:
            mask = extras.follows(positions)
            found["mask"] = following(mask, length, False) if "targets" in wanted else mask
        return found

    def _pieces(self, ids: Int64) -> tuple[Pieces, Int64]:
        """Return what some rows are made of, and the lengths of the documents of the pieces.

        Documents are numbered over all streams.
        """
        streams = np.searchsorted(self._first_rows, ids, side="right") - 1
        parts: list[tuple[Int64, ...]] = []
        for stream in np.unique(streams).tolist():
            those = np.flatnonzero(streams == stream)
            found = self._rows[stream].pieces(ids[those] - self._first_rows[stream])
            ends, document = self._ends[stream], found.document
            length = ends.before(document + 1) - ends.before(document)
            document = document + self._first_documents[stream]
            parts.append((those[found.row], document, found.begin, found.size, length))
        if len(parts) != 1:
            empty = [(np.empty(0, np.int64),) * 5]
            joined = [np.concatenate(each) for each in zip(*(parts or empty))]
            order = np.argsort(joined[0], kind="stable")
            parts = [tuple(each[order] for each in joined)]
        *pieces, lengths = parts[0]
        return Pieces(*pieces), lengths


def _places(pieces: Pieces, count: int, width: int) -> Int64:
    """Return where among the tokens of all rows, `width` each, each piece begins."""
    before = np.cumsum(pieces.size) - pieces.size
    totals = np.bincount(pieces.row, pieces.size, count).astype(np.int64)
    moved = np.arange(count) * width - (np.cumsum(totals) - totals)
    found: Int64 = before + moved[pieces.row]
    return found
