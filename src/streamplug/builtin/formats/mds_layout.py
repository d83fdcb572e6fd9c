"""Layout of MDS samples, and the decoding of many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamplug.interfaces import Column, Encoding, GatherBuffer, MultiShardReader
from streamplug.types import ColumnValues, Int64

_U32 = np.dtype("<u4")

_MAX_MERGED_VALUE_BYTES = 64
"""Size of a value up to which copying it twice is faster than one gather per column."""

_MAX_DECODED_BYTES = 1 << 20
"""Bytes to decode at once, so that the values are still in the CPU caches when used, and memory is reused."""

_OBJECT_BYTES = 64
"""Approximate overhead of a Python object in bytes."""


class LengthError(Exception):
    """A sample has more or fewer bytes than its columns; `at` is its position among those requested."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class ColumnError(Exception):
    """The values of a column cannot be decoded, for the reason in ``__cause__``."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.column = column


class Located(NamedTuple):
    """Locations of samples in a buffer.

    Attributes:
        begins: Offset of the first column, and the end of each column of variable size, shape
            ``[variable + 1, n]``.
        sizes: Bytes of the values of variable size, shape ``[variable, n]``.
    """

    begins: Int64
    sizes: Int64

    def part(self, some: slice) -> Located:
        """Return the locations of a slice of the samples."""
        return Located(self.begins[:, some], self.sizes[:, some])


class _Run(NamedTuple):
    """Adjacent columns of small plain values, copied as one, or a single column of any kind.

    Attributes:
        after: Number of columns of variable size before it.
        offset: Bytes between the last of these and the run.
        columns: Its columns.
        at: Positions of these among the requested columns.
    """

    after: int
    offset: int
    columns: list[Column]
    at: list[int]

    def dtype(self) -> np.dtype[Any] | None:
        """Return a structured dtype of the columns, or that of the only one; None if that is not plain."""
        dtypes = [column.encoding.dtype for column in self.columns]
        if len(dtypes) == 1:
            return dtypes[0] if _is_plain(self.columns[0].encoding) else None
        return np.dtype([(str(n), dtype) for n, dtype in enumerate(dtypes)])


_Planned = list[tuple[_Run, "np.dtype[Any] | None"]]


class MDSLayout(MultiShardReader):
    """The layout of a sample's columns.

    Attributes:
        of: The columns as they were given, to recognize them.
        columns: All columns, in stored order.
        fixed: Bytes of each column's values, or None.
        lengths: Bytes of the lengths at the start of a sample.
        rest: Bytes of a sample besides its values of variable size.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.of, self.columns = columns, tuple(columns)
        self.fixed = [column.encoding.size for column in columns]
        self.lengths = _U32.itemsize * self.fixed.count(None)
        self.rest = self.lengths + sum(size or 0 for size in self.fixed)
        self._places: dict[str, tuple[int, int]] = {}
        after = offset = 0
        for column, size in zip(self.columns, self.fixed):
            self._places[column.name] = (after, offset)
            after, offset = (after + 1, 0) if size is None else (after, offset + size)
        self._planned: tuple[Sequence[Column], _Planned] = ((), [])

    def take(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        return self.decoded(data, self._in_shards(data, shards, sizes, rows), columns)

    def take_parts(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
        *,
        parts: Sequence[slice],
    ) -> Iterator[list[ColumnValues]]:
        located = self._in_shards(data, shards, sizes, rows)
        nbytes = sum(self._nbytes(located, column) for column in columns)
        num_parts = max(_MAX_DECODED_BYTES * len(parts) // max(nbytes, 1), 1)
        for first in range(0, len(parts), num_parts):
            some = parts[first : first + num_parts]
            start = some[0].start
            values = self.decoded(data, located.part(slice(start, some[-1].stop)), columns)
            if len(some) == 1:
                yield values
                continue
            for part in some:
                yield [column[part.start - start : part.stop - start] for column in values]

    def values(
        self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64]:
        return self.place(self._in_shards(data, shards, sizes, rows), column)

    def _in_shards(self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64) -> Located:
        bounds = data.gather(shards + 4 * (rows + 1), 8).view(_U32).reshape(-1, 2).astype(np.int64)
        lengths = bounds[:, 1] - bounds[:, 0]
        # Checked when opened, but the file may change while it is mapped; stay within its bounds.
        wrong = (bounds[:, 1] > sizes) | (lengths < self.rest)
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        return self.located(data, shards + bounds[:, 0], lengths)

    def located(self, data: GatherBuffer, starts: Int64, lengths: Int64) -> Located:
        """Locate the columns of samples; raise `LengthError` if a sample's size is wrong.

        Args:
            data: Buffer of the samples.
            starts: Offset of each sample, shape ``[n]``.
            lengths: Bytes of each sample, shape ``[n]``.
        """
        variable = self.lengths // _U32.itemsize
        heads = data.gather(starts, self.lengths).view(_U32).reshape(len(starts), variable)
        sizes = heads.T.astype(np.int64, order="C")
        begins = np.empty((variable + 1, len(starts)), np.int64)
        begins[0] = starts + self.lengths
        after, fixed = 0, 0
        for size in self.fixed:
            if size is None:
                np.add(begins[after], sizes[after] + fixed, out=begins[after + 1])
                after, fixed = after + 1, 0
            else:
                fixed += size
        wrong = begins[-1] + fixed != starts + lengths
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        return Located(begins, sizes)

    def place(self, located: Located, column: Column) -> tuple[Int64, Int64]:
        """Return start and size of the values of a column, each of shape ``[n]``."""
        after, offset = self._places[column.name]
        begins, size = located.begins[after] + offset, column.encoding.size
        return begins, located.sizes[after] if size is None else np.full(
            len(begins), size, np.int64
        )

    def _nbytes(self, located: Located, column: Column) -> int:
        """Return the approximate memory of the decoded values of a column."""
        encoding, count = column.encoding, len(located.begins[0])
        if encoding.size is not None:
            stored = encoding.size * count
        else:
            stored = int(located.sizes[self._places[column.name][0]].sum())
        more = 0 if encoding.dtype is not None else max(_OBJECT_BYTES, encoding.decoded_bytes or 0)
        return stored + more * count

    def decoded(
        self, data: GatherBuffer, located: Located, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Return the values of each column; raise `ColumnError` if one cannot be decoded."""
        decoded_columns: list[ColumnValues] = [[]] * len(columns)
        for run, dtype in self._runs(columns):
            if dtype is None:
                decoded_columns[run.at[0]] = self._column(data, located, run.columns[0])
                continue
            begins = located.begins[run.after] + run.offset
            values = data.array(begins, dtype)
            if len(run.at) == 1:
                decoded_columns[run.at[0]] = values
            else:
                for at, name in zip(run.at, dtype.names or ()):
                    decoded_columns[at] = values[name].copy()
        return decoded_columns

    def _column(self, data: GatherBuffer, located: Located, column: Column) -> ColumnValues:
        try:
            return column.encoding.decode_batch(data, *self.place(located, column))
        except Exception as error:
            raise ColumnError(column) from error

    def _runs(self, columns: Sequence[Column]) -> _Planned:
        planned, runs = self._planned
        if planned is not columns:
            runs = [(run, run.dtype()) for run in self._find_runs(columns)]
            self._planned = (columns, runs)
        return runs

    def _find_runs(self, columns: Sequence[Column]) -> list[_Run]:
        place_of = {column.name: at for at, column in enumerate(columns)}
        runs: list[_Run] = []
        open_ = False  # whether the last run may be extended
        end = (0, 0)  # `after` and the end of the last run
        for stored in self.columns:
            at = place_of.get(stored.name)
            if at is None:
                continue
            column, (after, offset) = columns[at], self._places[stored.name]
            small = (
                _is_plain(column.encoding)
                and (column.encoding.size or 0) <= _MAX_MERGED_VALUE_BYTES
            )
            if open_ and small and (after, offset) == end:
                runs[-1].columns.append(column)
                runs[-1].at.append(at)
            else:
                runs.append(_Run(after, offset, [column], [at]))
            open_, end = small, (after, offset + (column.encoding.size or 0))
        return runs


def _is_plain(encoding: Encoding) -> bool:
    """Return whether the values are plain memory, and the encoding does not override `decode_batch`."""
    return encoding.dtype is not None and type(encoding).decode_batch is Encoding.decode_batch
