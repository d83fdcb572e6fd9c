"""Reads shards of MDS: whole ones, and samples of one of which only the head was read."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column, Layout, ShardHead, ShardReader
from streamplug.interfaces.encoding import gather
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample

_U32 = np.dtype("<u4")


def head_size(samples: int) -> int:
    """Return how many bytes of a shard say where its samples lie."""
    return 4 * (samples + 2)


class MDSLayout(Layout):
    """Knows how the bytes of a sample are divided among its columns.

    Attributes:
        columns: All columns, in stored order.
        fixed: Bytes of each column's values, or None.
        lengths: Bytes of the lengths in front of a sample.
        rest: Bytes of a sample besides its values of variable size.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        """Take all columns, in stored order."""
        self.columns = tuple(columns)
        self.fixed = [column.encoding.size for column in columns]
        self.lengths = _U32.itemsize * self.fixed.count(None)
        self.rest = self.lengths + sum(size or 0 for size in self.fixed)

    def take(
        self,
        data: Bytes1D,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        places = self._located(data, shards, sizes, rows)
        return [column.encoding.decode_batch(data, *places[column.name]) for column in columns]

    def values(
        self, data: Bytes1D, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64]:
        return self._located(data, shards, sizes, rows)[column.name]

    def _located(
        self, data: Bytes1D, shards: Int64, sizes: Int64, rows: Int64
    ) -> dict[str, tuple[Int64, Int64]]:
        bounds = gather(data, shards + 4 * (rows + 1), 8).view(_U32).reshape(-1, 2).astype(np.int64)
        lengths = bounds[:, 1] - bounds[:, 0]
        # They were checked, but who writes to a file that is mapped must not make this look outside.
        wrong = (bounds[:, 1] > sizes) | (lengths < self.rest)
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        return self.places(data, shards + bounds[:, 0], lengths)

    def places(
        self, data: Bytes1D, starts: Int64, lengths: Int64
    ) -> dict[str, tuple[Int64, Int64]]:
        """Return where the values of each column begin, and their sizes.

        Args:
            data: Holds the samples.
            starts: Where each begins, shape ``[n]``.
            lengths: How many bytes each has, shape ``[n]``.

        Raises:
            LengthError: If the columns of one do not have that many.
        """
        heads = gather(data, starts, self.lengths).view(_U32)
        heads = heads.reshape(len(starts), self.lengths // _U32.itemsize)
        varying = heads.T.astype(np.int64, order="C")
        wrong = varying.sum(0) + self.rest != lengths
        if wrong.any():
            raise LengthError(int(wrong.argmax()))
        variable = iter(varying)
        places = {}
        begin = starts + self.lengths
        for column, size in zip(self.columns, self.fixed):
            taken = next(variable) if size is None else np.full(len(starts), size, np.int64)
            places[column.name] = (begin, taken)
            begin = begin + taken
        return places


class LengthError(Exception):
    """A sample has more or fewer bytes than its columns; says which of those asked for."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class MDSHead(ShardHead):
    """Knows where the samples of one shard lie.

    Attributes:
        offsets: Where each sample begins, and the end of the last, uint32, shape ``[samples + 1]``.
        layout: How their bytes are divided.
    """

    def __init__(self, samples: int, head: Bytes1D, size: int, columns: Sequence[Column]) -> None:
        """Check the shard's structure as a whole.

        Args:
            samples: How many samples the index says that it has.
            head: The file, or at least its first `head_size` bytes.
            size: Bytes of the file.
            columns: All columns, in stored order.

        Raises:
            CorruptShardError: If the head does not fit the index, the file or itself.
        """
        self.offsets = _offsets(head, samples, size)
        self.layout = layout = MDSLayout(columns)
        lengths = np.diff(self.offsets)
        short = lengths < layout.rest if layout.lengths else lengths != layout.rest
        if short.any():
            raise self.corrupt(int(short.argmax()))

    def byte_ranges(self, rows: Int64) -> Int64:
        return np.stack([self.offsets[rows], self.offsets[rows + 1]], axis=1).astype(np.int64)

    def sizes(self, column: Column) -> Int64 | None:
        if column.encoding.size is not None:
            return np.full(len(self.offsets) - 1, column.encoding.size, np.int64)
        if self.layout.fixed.count(None) > 1:  # how the rest is divided stands in the samples
            return None
        return np.diff(self.offsets).astype(np.int64) - self.layout.rest

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        lengths = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        try:
            places = self.layout.places(data, starts, lengths)
        except LengthError as error:
            raise self.corrupt(int(rows[error.at])) from None
        taken = []
        for column in columns:
            begin, sizes = places[column.name]
            try:
                taken.append(column.encoding.decode_batch(data, begin, sizes))
            except Exception as error:
                view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
                values = [view[at : at + size] for at, size in zip(begin, sizes)]
                raise _blame(column, rows, values, error) from error
        return taken

    def corrupt(self, index: int) -> CorruptShardError:
        """Return the error for a sample whose length is wrong."""
        start, stop = self.offsets[index : index + 2].tolist()
        return CorruptShardError(
            f"sample {index}: its {stop - start} bytes do not hold the columns "
            f"{', '.join(c.name for c in self.layout.columns)}"
        )


class MDSReader(ShardReader):
    """Reads one shard from its bytes."""

    def __init__(self, samples: int, data: Bytes1D, columns: Sequence[Column]) -> None:
        """Check the shard's structure as a whole.

        Raises:
            CorruptShardError: If the header does not fit the index, the file or itself.
        """
        self._data = data
        self._view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        self._head = MDSHead(samples, data, len(data), columns)
        self._bounds = memoryview(self._head.offsets)  # type: ignore[arg-type]  # an array is a buffer
        self._heads = Struct(f"<{self._head.layout.lengths // _U32.itemsize}I")
        self._rest = self._head.layout.rest
        self._row_plan: tuple[Sequence[Column], list[Any]] = ((), [])

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def byte_range(self, index: int) -> tuple[int, int]:
        return self._bounds[index], self._bounds[index + 1]

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        planned, plan = self._row_plan
        if planned is not columns:
            wanted = {column.name for column in columns}
            plan = [
                (c.name, c.encoding.size, c.encoding.decode if c.name in wanted else None)
                for c in self._head.layout.columns
            ]
            self._row_plan = (columns, plan)
        view, start = self._view, self._bounds[index]
        heads = self._heads.unpack_from(view, start)
        if self._rest + sum(heads) != self._bounds[index + 1] - start:
            raise self._head.corrupt(index)
        start += self._heads.size
        head = iter(heads)
        sample: Sample = {}
        name = ""
        try:
            for name, size, decode in plan:
                stop = start + (next(head) if size is None else size)
                if decode is not None:
                    sample[name] = decode(view[start:stop])
                start = stop
        except Exception as error:
            raise _undecodable(index, name, error) from error
        return sample

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.offsets[rows].astype(np.int64)
        return self._head.take(rows, self._data, starts, columns)


def _blame(
    column: Column, rows: Int64, values: Sequence[memoryview], error: Exception
) -> DecodeError:
    """Find the sample that made a batch fail."""
    for row, value in zip(rows.tolist(), values):
        try:
            column.encoding.decode(value)
        except Exception as single:  # noqa: BLE001 - whatever it raises, this is the one
            return _undecodable(row, column.name, single)
    return DecodeError(f"column {column.name!r}: {type(error).__name__}: {error}")


def _offsets(data: Bytes1D, samples: int, size: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    header = head_size(samples)
    if len(data) < header:
        raise CorruptShardError(f"{len(data)} bytes cannot hold the {samples} samples of the index")
    count = int(data[:4].view(_U32)[0])
    if count != samples:
        raise CorruptShardError(f"it holds {count} samples, the index says {samples}")
    offsets = data[4:header].view(_U32)
    if offsets[0] < header or offsets[-1] != size:
        raise CorruptShardError(
            f"its samples span bytes {offsets[0]} to {offsets[-1]} of a file of {size} bytes"
        )
    if samples and (wrong := offsets[1:] < offsets[:-1]).any():
        raise CorruptShardError(f"sample {int(wrong.argmax())} ends before it begins")
    return offsets


def _undecodable(index: int, column: str, error: Exception) -> DecodeError:
    reason = str(error) if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
    return DecodeError(f"sample {index}, column {column!r}: {reason}")
