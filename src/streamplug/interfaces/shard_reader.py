"""Readers of the samples of a shard, of a part of one, or of many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from streamplug.interfaces.encoding import GatherBuffer
from streamplug.interfaces.shard import Column
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample


class ShardReader(ABC):
    """Reads the samples of one shard from its local files.

    May be used by several threads at once. `columns` select and order what is decoded: the bytes of
    others are not touched.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        """Decode one sample.

        Args:
            index: Which, in ``[0, len(self))``.
            columns: Which of the shard's columns.

        Raises:
            CorruptShardError: If the shard's structure is damaged at this sample.
            DecodeError: If a value cannot be decoded; the message names sample and column.
        """

    def row_reader(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
        """Return `row` for some columns, to be called often; the default has nothing prepared."""
        return partial(self.row, columns=columns)

    @abstractmethod
    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        """Decode many samples, in the order asked for.

        Args:
            rows: Which, each in ``[0, len(self))``; repeats are allowed.
            columns: Which of the shard's columns.

        Returns:
            The values of each column, in the order of `columns`.

        Raises:
            CorruptShardError: As for `row`.
            DecodeError: As for `row`.
        """

    def byte_range(self, index: int) -> tuple[int, int] | None:
        """Return where in the data file one sample lies, or None if it is not one piece."""
        return None


class ShardHeader(ABC):
    """Where the samples of one shard lie, known from a part of one of its files.

    May be used by several threads at once.
    """

    @abstractmethod
    def byte_ranges(self, rows: Int64) -> Int64:
        """Return where in the data file samples begin and end: int64, shape ``[n, 2]``.

        Args:
            rows: Which, shape ``[n]``.
        """

    @abstractmethod
    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        """Decode samples of which the bytes were read, as `ShardReader.take` does.

        Args:
            rows: Which, shape ``[n]``.
            data: Holds the bytes of these samples, and perhaps of others; read only.
            starts: Where in it each begins, shape ``[n]``.
            columns: Which of the shard's columns.

        Raises:
            CorruptShardError: As for `ShardReader.take`.
            DecodeError: As for `ShardReader.take`.
        """

    def sizes(self, column: Column) -> Int64 | None:
        """Return the bytes of each sample's encoded value of one column, shape ``[samples]``.

        The default is None: the samples themselves have to be read for that.
        """
        return None


class MultiShardReader(ABC):
    """How samples lie in whole shards of one schema, to read those of many shards at once.

    May be used by several threads at once.
    """

    @abstractmethod
    def take(
        self,
        data: GatherBuffer,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        """Decode samples of several shards, in the order asked for.

        Args:
            data: The data files of all shards, each opened before without an error. Their content may have
                changed since.
            shards: Where in it the file of each sample begins, shape ``[n]``.
            sizes: How many bytes that file has, shape ``[n]``.
            rows: Which sample of that file, shape ``[n]``.
            columns: Which of the shards' columns.

        Returns:
            The values of each column, in the order of `columns`.

        Raises:
            Exception: Any, if a sample is damaged. Who called asks `ShardReader.take` which one.
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
        """Decode samples as `take` does, but some at a time, each part when it is asked for.

        The default takes each part by itself. Who finds all samples at once saves time.

        Args:
            data: As for `take`, as all that is not named here.
            shards: One for each sample.
            sizes: One for each sample.
            rows: One for each sample.
            columns: Which of the shards' columns.
            parts: Which samples to decode together: one part after the other, none of them empty.

        Yields:
            The values of each column, for each part.

        Raises:
            Exception: As `take`; the other parts may be whole, but need not come.
        """
        for part in parts:
            yield self.take(data, shards[part], sizes[part], rows[part], columns)

    def values(
        self, data: GatherBuffer, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64] | None:
        """Return where the encoded values of one column begin, and their sizes, each of shape ``[n]``.

        The default is None: they do not lie in one piece each. Arguments and errors are those of `take`.
        """
        return None
