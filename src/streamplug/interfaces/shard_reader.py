"""Readers of the samples of a shard, of a part of one, or of many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from streamplug.interfaces.encoding import GatherBuffer
from streamplug.interfaces.shard import Column
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample


class ShardReader(ABC):
    """Reads the samples of one shard from its local files.

    Thread-safe. `columns` select and order what is decoded; the bytes of other columns are not read.
    """

    @property
    def name_of(self) -> Callable[[int], str | None] | None:
        """Function that names a sample for errors, such as by its own file; None, the default, without names.

        It may outlive the reader, and must not refer to the data.
        """
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        """Decode one sample; the default calls `take`.

        Args:
            index: Number of the sample in ``[0, len(self))``.
            columns: Columns to decode.

        Raises:
            CorruptShardError: If the shard is structurally damaged at this sample.
            DecodeError: If a value cannot be decoded; the message names sample and column.
        """
        values = zip(columns, self.take(np.array([index], np.int64), columns))
        return {column.name: column.encoding.unbatch(value)[0] for column, value in values}

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        """Return `row` for fixed columns, to be called often; the default precomputes nothing."""
        return partial(self.row, columns=columns)

    @abstractmethod
    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        """Decode many samples, in the given order.

        Args:
            rows: Numbers in ``[0, len(self))``, shape ``[n]``; repeats are allowed.
            columns: Columns to decode.

        Returns:
            The values of each column, in the order of `columns`.

        Raises:
            CorruptShardError: As for `row`.
            DecodeError: As for `row`.
        """

    def byte_range(self, index: int) -> tuple[int, int] | None:
        """Return the byte range of a sample in the data file, or None if it is not contiguous."""
        return None


class ShardHeader(ABC):
    """Locations of the samples of one shard, read from its header. Thread-safe.

    Attributes:
        reads_parts: Whether `take` accepts a `GatherBuffer` for `data`, which fetches what is read of it.
    """

    reads_parts: ClassVar[bool] = False

    @property
    def name_of(self) -> Callable[[int], str | None] | None:
        """As of `ShardReader`."""
        return None

    @abstractmethod
    def byte_ranges(self, rows: Int64) -> Int64:
        """Return start and end of samples in the data file: int64, shape ``[n, 2]``.

        Args:
            rows: Sample numbers, shape ``[n]``.
        """

    @abstractmethod
    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Decode samples whose bytes were read, as `ShardReader.take` does.

        Args:
            rows: Sample numbers, shape ``[n]``.
            data: Buffer with the bytes of at least these samples; read only.
            starts: Offset of each sample in it, shape ``[n]``.
            columns: Columns to decode.

        Raises:
            CorruptShardError: As for `ShardReader.take`.
            DecodeError: As for `ShardReader.take`.
        """

    def sizes(self, column: Column) -> Int64 | None:
        """Return the encoded size of each sample's value of a column, shape ``[samples]``.

        None, the default, if the samples themselves must be read for that.
        """
        return None


class MultiShardReader(ABC):
    """Reads samples of many shards of one schema at once. Thread-safe."""

    @abstractmethod
    def take(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        """Decode samples of several shards, in the given order.

        Args:
            data: Data files of all shards, each opened before without an error; their content may have
                changed since.
            shards: Offset in `data` of each sample's file, shape ``[n]``.
            sizes: Size of that file in bytes, shape ``[n]``.
            rows: Number of the sample in that file, shape ``[n]``.
            columns: Columns to decode.

        Returns:
            The values of each column, in the order of `columns`.

        Raises:
            Exception: Any, if a sample is damaged. The caller then calls `ShardReader.take` to find out
                which.
        """

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
        """Decode samples as `take` does, but lazily in parts.

        The default calls `take` for each part; locating all samples at once is faster. `parts` are
        consecutive, non-empty slices of the samples; the other arguments are those of `take`.

        Yields:
            The values of each column, for each part.

        Raises:
            Exception: As for `take`; other parts, though undamaged, need not be yielded.
        """
        for part in parts:
            yield self.take(data, shards[part], sizes[part], rows[part], columns)

    def values(
        self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64] | None:
        """Return start and size of the encoded values of one column, each of shape ``[n]``.

        None, the default, if they are not contiguous. Arguments and errors are those of `take`.
        """
        return None
