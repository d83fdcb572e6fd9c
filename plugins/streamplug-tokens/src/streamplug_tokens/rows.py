"""Rows: which tokens of which documents make up the rows of one stream, as arithmetic on lengths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from streamplug.types import Int64
from streamplug_tokens.ends import Ends, Even, Listed
from streamplug_tokens.kept import Kept
from streamplug_tokens.packing import packed
from streamplug_tokens.views import TokenBlocks, TokenPacks


class Pieces(NamedTuple):
    """Parts of documents, of which rows are made from the left on.

    Attributes:
        row: Which of the rows each is in, ascending, shape ``[n]``.
        document: Which document it is of.
        begin: Its first token in that document.
        size: How many tokens it has, at least 1.
    """

    row: Int64
    document: Int64
    begin: Int64
    size: Int64


class Rows(ABC):
    """The rows of one stream.

    Attributes:
        count: How many there are.
    """

    count: int

    @abstractmethod
    def starts(self, documents: Int64) -> Int64:
        """Return how many rows begin before some documents, ascending; before the end for the last."""

    @abstractmethod
    def pieces(self, rows: Int64) -> Pieces:
        """Return what some rows are made of, in their order."""


class Across(Rows):
    """Rows over the concatenation of all documents."""

    def __init__(self, ends: Ends, view: TokenBlocks) -> None:
        self._ends, self._stride = ends, view.stride or view.length
        self._width = view.length + view.ahead
        self.count = _windows(np.array([ends.total]), self._width, self._stride, view.short)[0]

    def starts(self, documents: Int64) -> Int64:
        return np.minimum(-(-self._ends.before(documents) // self._stride), self.count)

    def pieces(self, rows: Int64) -> Pieces:
        begin = rows * self._stride
        end = np.minimum(begin + self._width, self._ends.total)
        first, last = self._ends.find(begin), self._ends.find(end - 1)
        counts = last - first + 1
        row = np.repeat(np.arange(len(rows)), counts)
        document = first[row] + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        before = self._ends.before(document)
        low = np.maximum(begin[row] - before, 0)
        size = np.minimum(end[row], self._ends.before(document + 1)) - before - low
        some = size > 0  # empty documents have no part in it
        return Pieces(row[some], document[some], low[some], size[some])


class Within(Rows):
    """Rows of single documents."""

    def __init__(self, ends: Ends, view: TokenBlocks, kept: Kept, what: str) -> None:
        self._ends, self._stride = ends, view.stride or view.length
        self._width = view.length + view.ahead
        self._rows = self._counted(ends, view, kept, what)
        self.count = self._rows.total

    def _counted(self, ends: Ends, view: TokenBlocks, kept: Kept, what: str) -> Ends:
        """Return how many rows lie before each document."""
        if isinstance(ends, Even):
            each = _windows(np.array([ends.length]), self._width, self._stride, view.short)
            return Even(int(each[0]), ends.count)

        def make() -> Int64:
            lengths = np.diff(ends.before(np.arange(ends.count + 1)))
            return _starts(_windows(lengths, self._width, self._stride, view.short))

        return Listed(kept.array(f"rows of {self._width, self._stride, view.short}, {what}", make))

    def starts(self, documents: Int64) -> Int64:
        return self._rows.before(documents)

    def pieces(self, rows: Int64) -> Pieces:
        document = self._rows.find(rows)
        begin = (rows - self._rows.before(document)) * self._stride
        length = self._ends.before(document + 1) - self._ends.before(document)
        size = np.minimum(self._width, length - begin)
        return Pieces(np.arange(len(rows)), document, begin, size)


class Packed(Rows):
    """Rows of documents that were packed together."""

    def __init__(self, ends: Ends, view: TokenPacks, kept: Kept, what: str) -> None:
        self._ends, self._width = ends, view.length
        what = f"packs of {view.group} into {view.length}, {what}"

        def make() -> Int64:
            return packed(ends.before(np.arange(ends.count + 1)), view.length, view.group)

        # Sent to another process, this is mapped there again; parts of it would be copied.
        self._kept = kept.array(what, make)
        self.count = int(self._kept[0])

    @property
    def _bounds(self) -> Int64:
        return np.asarray(self._kept)[1 : self.count + 2]

    @property
    def _places(self) -> Int64:
        return np.asarray(self._kept)[self.count + 2 :]

    def starts(self, documents: Int64) -> Int64:
        first = self._places[self._bounds[:-1]]  # rows are in the order of their first tokens
        found: Int64 = np.searchsorted(first, self._ends.before(documents))
        return found

    def pieces(self, rows: Int64) -> Pieces:
        counts = self._bounds[rows + 1] - self._bounds[rows]
        row = np.repeat(np.arange(len(rows)), counts)
        among = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        place = self._places[self._bounds[rows][row] + among]
        document = self._ends.find(place)
        begin = place - self._ends.before(document)
        length = self._ends.before(document + 1) - self._ends.before(document)
        return Pieces(row, document, begin, np.minimum(self._width, length - begin))


def _windows(lengths: Int64, width: int, stride: int, short: str) -> Int64:
    """Return how many windows there are over sequences of some lengths."""
    whole = np.where(lengths < width, 0, 1 + (lengths - width) // stride)
    if short == "drop":
        return whole
    reached = np.where(whole > 0, (whole - 1) * stride + width, 0)
    return whole + (lengths > reached)


def _starts(counts: Int64) -> Int64:
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts
