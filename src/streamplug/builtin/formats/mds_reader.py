"""Reads shards of MDS: whole ones, and samples of one of which only the head was read."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError, DecodeError
from streamplug.interfaces import Column, ShardHead, ShardReader
from streamplug.interfaces.encoding import gather
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample

_U32 = np.dtype("<u4")


def head_size(samples: int) -> int:
    """Return how many bytes of a shard say where its samples lie."""
    return 4 * (samples + 2)


class MDSHead(ShardHead):
    """Knows where the samples of one shard lie.

    Attributes:
        offsets: Where each sample begins, and the end of the last, uint32, shape ``[samples + 1]``.
        columns: All columns, in stored order.
        fixed: Bytes of each column's values, or None.
        heads: The lengths in front of a sample.
        rest: Bytes of a sample besides its values of variable size.
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
        self.columns = tuple(columns)
        self.fixed = [column.encoding.size for column in columns]
        self.heads = Struct(f"<{self.fixed.count(None)}I")
        self.rest = self.heads.size + sum(size or 0 for size in self.fixed)
        lengths = np.diff(self.offsets)
        short = lengths < self.rest if self.heads.size else lengths != self.rest
        if short.any():
            raise self.corrupt(int(short.argmax()))

    def byte_ranges(self, rows: Int64) -> Int64:
        return np.stack([self.offsets[rows], self.offsets[rows + 1]], axis=1).astype(np.int64)

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        places = self._places(rows, data, starts)
        taken = []
        for column in columns:
            begin, sizes = places[column.name]
            try:
                taken.append(column.encoding.decode_batch(data, begin, sizes))
            except Exception as error:
                view = memoryview(data)  # type: ignore[arg-type]
                values = [view[at : at + size] for at, size in zip(begin, sizes)]
                raise _blame(column, rows, values, error) from error
        return taken

    def _places(self, rows: Int64, data: Bytes1D, starts: Int64) -> dict[str, tuple[Int64, Int64]]:
        """Return where the value of each column begins, and its size, for some rows."""
        heads = gather(data, starts, self.heads.size).view(_U32).astype(np.int64)
        heads = heads.reshape(len(rows), self.heads.size // 4)
        wrong = heads.sum(1) + self.rest != self.offsets[rows + 1] - self.offsets[rows]
        if self.heads.size and wrong.any():
            raise self.corrupt(int(rows[wrong.argmax()]))
        places = {}
        begin = starts + self.heads.size
        variable = 0
        for column, size in zip(self.columns, self.fixed):
            if size is None:
                sizes = heads[:, variable]
                variable += 1
            else:
                sizes = np.full(len(rows), size, np.int64)
            places[column.name] = (begin, sizes)
            begin = begin + sizes
        return places

    def corrupt(self, index: int) -> CorruptShardError:
        """Return the error for a sample whose length is wrong."""
        start, stop = self.offsets[index : index + 2].tolist()
        return CorruptShardError(
            f"sample {index}: its {stop - start} bytes do not hold the columns "
            f"{', '.join(c.name for c in self.columns)}"
        )


class MDSReader(ShardReader):
    """Reads one shard from its bytes."""

    def __init__(self, samples: int, data: Bytes1D, columns: Sequence[Column]) -> None:
        """Check the shard's structure as a whole.

        Raises:
            CorruptShardError: If the header does not fit the index, the file or itself.
        """
        self._data = data
        self._view = memoryview(data)  # type: ignore[arg-type]
        self._head = MDSHead(samples, data, len(data), columns)
        self._bounds = memoryview(self._head.offsets)  # type: ignore[arg-type]
        self._heads, self._rest = self._head.heads, self._head.rest
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
                for c in self._head.columns
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
