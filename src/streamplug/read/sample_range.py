"""Samples of a shard that are fetched together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamplug.read.memory import spanned
from streamplug.transfer.spans import located
from streamplug.types import Bytes1D, Int64

_FIRST = np.zeros(1, np.int64)


class SampleRange:
    """Some samples of one shard, fetched together.

    Attributes:
        number: The shard, over all streams.
        shard: The shard, in its stream.
        rows: Which samples of it, ascending.
        weight: About how many bytes they have.
        data: A buffer in which all their bytes lie; what lies between must not be touched.
        starts: Where in `data` each begins.
    """

    __slots__ = (
        "_part_of",
        "_parts",
        "_places",
        "data",
        "number",
        "rows",
        "shard",
        "starts",
        "weight",
    )

    def __init__(self, number: int, shard: int, rows: Int64, weight: int) -> None:
        self.number, self.shard, self.weight = number, shard, weight
        self.rows: Int64 = np.unique(rows) if len(rows) > 1 else rows
        self.data: Bytes1D = np.empty(0, np.uint8)
        self._parts: list[Bytes1D] = []  # `data` does not keep them alive
        self._part_of, self._places = np.zeros((2, len(self.rows)), np.int64)
        self.starts = self._places

    def add(
        self, some: NDArray[np.bool_], ranges: Int64, spans: Int64, parts: Sequence[Bytes1D]
    ) -> None:
        """Take the bytes of some of the samples, without copying.

        Args:
            some: Which of the rows, shape ``[rows]``.
            ranges: Where in the file these lie, shape ``[n, 2]``.
            spans: Parts of the file in which they lie, shape ``[m, 2]``; ascending, and none is empty.
            parts: The bytes of those.
        """
        number, self._places[some] = located(ranges, spans)
        self._part_of[some] = len(self._parts) + number
        self._parts += parts
        self.data, begins = spanned(self._parts)
        self.starts = begins[self._part_of] + self._places

    def places(self, rows: Int64) -> Int64 | None:
        """Return where each of some rows is among those of this piece, or None if one is not."""
        if len(rows) == len(self.rows) == 1:
            return _FIRST if rows[0] == self.rows[0] else None
        places = np.searchsorted(self.rows, rows)
        places[places == len(self.rows)] = 0
        return places if np.array_equal(self.rows[places], rows) else None


FetchGroup: TypeAlias = "tuple[SampleRange, ...]"
"""Pieces of different shards of one stream, fetched together."""

_ROWS, _BYTES = 8, 4 << 20
"""Samples, and bytes, of a haul: with more, what is needed first waits for what is needed later."""


def group_ranges(pieces: Iterable[tuple[Hashable, SampleRange]]) -> list[FetchGroup]:
    """Put pieces together.

    Args:
        pieces: Each with what says which others it may be fetched with; in the order of need.

    Returns:
        The hauls, in the order of the need of the first piece of each.
    """
    found: list[list[SampleRange]] = []
    filling: dict[Hashable, tuple[list[SampleRange], int, int]] = {}
    for kind, piece in pieces:
        haul, rows, size = filling.get(kind, ([], 0, 0))
        rows, size = rows + len(piece.rows), size + piece.weight
        if haul and (rows > _ROWS or size > _BYTES):
            haul, rows, size = [], len(piece.rows), piece.weight
        if not haul:
            found.append(haul)
        haul.append(piece)
        filling[kind] = haul, rows, size
    return [tuple(haul) for haul in found]
