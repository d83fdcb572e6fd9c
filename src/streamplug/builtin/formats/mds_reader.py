"""Readers of MDS shards: whole, or by range after the header was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamplug.builtin.formats.mds_layout import ColumnError, LengthError, MDSLayout
from streamplug.builtin.formats.mds_row import row_reader
from streamplug.errors import CorruptShardError
from streamplug.interfaces import Column, GatherBuffer, ShardHeader, ShardReader
from streamplug.plugin_kit import decode_error
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample

_U32 = np.dtype("<u4")


def head_size(samples: int) -> int:
    """Return the bytes of a shard's header."""
    return 4 * (samples + 2)


class MDSHead(ShardHeader):
    """The header of one shard.

    Attributes:
        offsets: Start of each sample, and end of the last, uint32, shape ``[samples + 1]``.
        layout: Layout of the columns in a sample.
    """

    reads_parts = True

    def __init__(self, samples: int, head: Bytes1D, size: int, layout: MDSLayout) -> None:
        """Validate the header; raise `CorruptShardError` if it contradicts the index, the file or itself.

        Args:
            samples: Number of samples in the index.
            head: The file, or at least its first `head_size` bytes.
            size: Bytes of the file.
            layout: Layout of the columns, which the shards of a schema may share.
        """
        self.offsets = _offsets(head, samples, size)
        self.layout = layout
        lengths = np.diff(self.offsets)
        short = lengths < layout.rest if layout.lengths else lengths != layout.rest
        if short.any():
            raise self.corrupt(int(short.argmax()))

    def byte_ranges(self, rows: Int64) -> Int64:
        ranges = np.empty((len(rows), 2), np.int64)
        ranges[:, 0], ranges[:, 1] = self.offsets[rows], self.offsets[rows + 1]
        return ranges

    def sizes(self, column: Column) -> Int64 | None:
        if column.encoding.size is not None:
            return np.full(len(self.offsets) - 1, column.encoding.size, np.int64)
        if self.layout.fixed.count(None) > 1:  # the single sizes are stored in the samples
            return None
        return np.diff(self.offsets).astype(np.int64) - self.layout.rest

    def take(
        self,
        rows: Int64,
        data: Bytes1D | GatherBuffer,
        starts: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        lengths = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        layout, buffer = self.layout, data if isinstance(data, GatherBuffer) else GatherBuffer(data)
        try:
            located = layout.located(buffer, starts, lengths)
        except LengthError as error:
            raise self.corrupt(int(rows[error.at])) from None
        try:
            return layout.decoded(buffer, located, columns)
        except ColumnError as failed:
            column, cause = failed.column, failed.__cause__
        # Not in the `except` block, where `failed` would become the context of its own cause.
        begins, sizes = layout.place(located, column)
        values = (buffer.values if column.encoding.partial else buffer.slices)(begins, sizes)
        raise decode_error(column, rows, values, cause) from cause

    def corrupt(self, index: int) -> CorruptShardError:
        """Return the error for a sample of wrong length."""
        start, stop = self.offsets[index : index + 2].tolist()
        return CorruptShardError(
            f"sample {index}: its {stop - start} bytes do not hold the columns "
            f"{', '.join(c.name for c in self.layout.columns)}"
        )


class MDSReader(ShardReader):
    """Reads one shard from its bytes."""

    def __init__(self, samples: int, data: Bytes1D, columns: Sequence[Column]) -> None:
        """Validate the header as `MDSHead` does."""
        self._data = data
        self._head = MDSHead(samples, data, len(data), MDSLayout(columns))
        self._bounds = memoryview(self._head.offsets)  # type: ignore[arg-type]  # an array is a buffer

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def byte_range(self, index: int) -> tuple[int, int]:
        return self._bounds[index], self._bounds[index + 1]

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        return self.row_reader(columns)(index)

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        with_care = partial(self._with_care, columns=columns)
        return row_reader(self._data, self._bounds, self._head.layout, columns, with_care)

    def _with_care(self, index: int, columns: Sequence[Column]) -> Sample:
        """Decode a sample as `take` does, whose errors name sample and column."""
        names = [column.name for column in self._head.layout.columns]
        return super().row(index, sorted(columns, key=lambda column: names.index(column.name)))

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.offsets[rows].astype(np.int64)
        return self._head.take(rows, self._data, starts, columns)


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
