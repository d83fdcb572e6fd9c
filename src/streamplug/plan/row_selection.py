"""Selections of rows of a stream by its user (`select=`), as ranges and lists of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np

from streamplug.errors import ConfigError
from streamplug.types import Int64

_ROWS_PER_DIGEST_UPDATE = 1 << 20


class RowSelection(ABC):
    """Ascending, distinct rows of a stream, which are renumbered from 0.

    Attributes:
        stream_size: Number of rows that the stream must have; None for any number that is large enough.
    """

    stream_size: int | None = None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of selected rows."""

    @abstractmethod
    def rows(self, positions: Int64) -> Int64:
        """Return the selected rows at positions in the selection."""

    @abstractmethod
    def row(self, position: int) -> int:
        """Return the selected row at one position."""

    @abstractmethod
    def ranks(self, bounds: Int64) -> Int64:
        """Return the number of selected rows below each bound, all bounds ascending."""

    @property
    def digest(self) -> str:
        """Hexadecimal digest of the rows, equal for equal rows in any representation.

        It is BLAKE2b over the first row of each run of consecutive rows and the row behind its last one, as
        little-endian int64.
        """
        digest, size, start = blake2b(digest_size=16), len(self), -1
        stop = -1  # of the last run, which may go on
        for first in range(0, size, _ROWS_PER_DIGEST_UPDATE):
            rows = self.rows(np.arange(first, min(first + _ROWS_PER_DIGEST_UPDATE, size)))
            cuts = np.flatnonzero(np.diff(rows) != 1) + 1
            starts, stops = rows[[0, *cuts]], rows[[*(cuts - 1), -1]] + 1
            if starts[0] == stop:
                starts[0] = start
            elif first:
                digest.update(np.array([start, stop], "<i8").tobytes())
            runs = np.stack([starts, stops], 1).astype("<i8")
            digest.update(runs[:-1].tobytes())
            start, stop = runs[-1].tolist()
        digest.update(np.array([start, stop], "<i8").tobytes())
        return digest.hexdigest()

    def check(self, size: int, where: str) -> None:
        """Check that the selection fits a stream of `size` rows.

        Raises:
            ConfigError: If it does not.
        """
        if self.stream_size not in (None, size):
            raise ConfigError(
                f"{where}: select= is a mask of {self.stream_size} rows, the stream has {size}: give one "
                "value for each row"
            )
        if len(self) and (last := self.row(len(self) - 1)) >= size:
            raise ConfigError(
                f"{where}: select= has row {last}, the stream has {size} rows, from 0"
            )


class SelectedRows(RowSelection):
    """Rows in an array: int64, ascending and distinct."""

    def __init__(self, rows: Int64, stream_size: int | None = None) -> None:
        """Select `rows`, which must be ascending and distinct."""
        self._rows, self.stream_size = rows, stream_size

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, positions: Int64) -> Int64:
        return self._rows[positions]

    def row(self, position: int) -> int:
        return self._rows.item(position)

    def ranks(self, bounds: Int64) -> Int64:
        return np.searchsorted(self._rows, bounds)


class RowRange(RowSelection):
    """Consecutive rows."""

    def __init__(self, start: int, stop: int) -> None:
        """Select the rows from `start` to `stop`, exclusive."""
        self._start, self._stop = start, max(start, stop)

    def __len__(self) -> int:
        return self._stop - self._start

    def rows(self, positions: Int64) -> Int64:
        return positions + self._start

    def row(self, position: int) -> int:
        return position + self._start

    def ranks(self, bounds: Int64) -> Int64:
        return np.clip(bounds, self._start, self._stop) - self._start


class StreamSelections:
    """The selections of all streams of a data set, over the rows of all of them."""

    def __init__(self, selections: Sequence[RowSelection | None], sizes: Sequence[int]) -> None:
        """Combine selections; None selects all rows of a stream, whose number `sizes` has."""
        self._parts = [
            RowRange(0, size) if selection is None else selection
            for selection, size in zip(selections, sizes)
        ]
        self._firsts = list(accumulate(sizes, initial=0))
        self._bounds = list(accumulate(map(len, self._parts), initial=0))

    def row(self, position: int) -> int:
        """Return the row of one position."""
        if len(self._parts) == 1:
            return self._parts[0].row(position)
        stream = bisect_right(self._bounds, position) - 1
        return self._parts[stream].row(position - self._bounds[stream]) + self._firsts[stream]

    def rows(self, positions: Int64) -> Int64:
        """Return the row of each position."""
        if len(self._parts) == 1:
            return self._parts[0].rows(positions)
        rows = np.empty_like(positions)
        streams = np.searchsorted(self._bounds, positions, side="right") - 1
        for stream in np.unique(streams).tolist():
            here = streams == stream
            rows[here] = (
                self._parts[stream].rows(positions[here] - self._bounds[stream])
                + self._firsts[stream]
            )
        return rows

    def starts(self, starts: Int64, stream_shards: Sequence[int]) -> Int64:
        """Return the first position in each shard, and the number of positions; `starts` are in rows."""
        parts = [
            part.ranks(starts[first:last] - starts[first]) + bound
            for part, first, last, bound in zip(
                self._parts, stream_shards, stream_shards[1:], self._bounds
            )
        ]
        return np.concatenate([*parts, np.array(self._bounds[-1:], np.int64)])


def parse_selection(select: Any) -> RowSelection:
    """Return the selection that the argument `select` describes.

    Args:
        select: A boolean mask with a value for each row, distinct row numbers in any order, a `range`,
            or a selection.

    Raises:
        ConfigError: If it is none of these, or a row is negative or repeated.
    """
    if isinstance(select, RowSelection):
        return select
    if isinstance(select, range) and select.step == 1:
        if select.start < 0:
            raise ConfigError(f"select={select}: rows are counted from 0")
        return RowRange(select.start, select.stop)
    if isinstance(select, (str, bytes, slice, set, dict)) or not hasattr(select, "__len__"):
        raise _unusable(select)
    try:
        array = np.asarray(select)
    except ValueError:
        raise _unusable(select) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "bui"):
        raise _unusable(select)
    if array.dtype.kind == "b":
        return SelectedRows(np.flatnonzero(array), len(array))
    rows = np.sort(array.astype(np.int64))
    if (rows[:1] < 0).any():
        raise ConfigError(f"select= has row {rows[0]}: rows are counted from 0")
    repeated = rows[1:][rows[1:] == rows[:-1]]
    if len(repeated):
        raise ConfigError(
            f"select= has row {repeated[0]} twice: give each row once, and repeat= to read rows repeatedly"
        )
    return SelectedRows(rows)


def _unusable(select: Any) -> ConfigError:
    return ConfigError(
        f"select={select!r:.60}: expected a mask of booleans, row numbers in a list or an array, or a range"
    )
