"""Formats whose shards consist of row groups, of which some columns can be fetched by range."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from streamplug.interfaces import Column, Format, ShardInfo, ShardReader
from streamplug.types import Bytes1D, Int64


class RangeFile(ABC):
    """A file of a shard, of which byte ranges can be read.

    Attributes:
        size: Size in bytes, according to the index.
        usual_header_bytes: Bytes of the largest header of the data set so far; 0 before the first.
    """

    size: int
    usual_header_bytes: int

    @abstractmethod
    def read(self, ranges: Int64) -> list[Bytes1D]:
        """Return byte ranges, fetching those that are not held; all are of one version of the file.

        Args:
            ranges: Start and stop offsets, shape ``[n, 2]``, none empty.

        Raises:
            StreamplugError: If they cannot be fetched, or the file was cut short or replaced.
        """


class RowGroupReader(ShardReader):
    """Reads the samples of one shard from its row groups. Decoded columns of these may be cached.

    Attributes:
        num_groups: Number of row groups.
        header_bytes: Bytes of the header that says where they are.
    """

    num_groups: int
    header_bytes: int

    @abstractmethod
    def groups_of(self, rows: Int64) -> Sequence[int]:
        """Return the distinct row groups of samples, whose numbers have the shape ``[n]``."""

    @abstractmethod
    def byte_ranges(self, group: int, columns: Sequence[Column]) -> Int64:
        """Return start and stop of what columns of a row group have in the file, shape ``[n, 2]``.

        None is empty, and those of what is in memory with the header are left out.

        Raises:
            CorruptShardError: If the header is damaged.
        """

    @abstractmethod
    def has_decoded(self, group: int, columns: Sequence[Column]) -> bool:
        """Return whether columns of a row group are cached, so that nothing is read of the file."""


class RowGroupFormat(Format):
    """A format whose samples are stored in row groups, column by column."""

    @abstractmethod
    def open_row_groups(
        self, shard: ShardInfo, file: RangeFile, columns: Sequence[Column]
    ) -> RowGroupReader:
        """Open a shard of which only the header is read at first.

        Args:
            shard: The shard's metadata from the index.
            file: The file ``data``.
            columns: All of its columns, as returned by `columns`.

        Raises:
            CorruptShardError: If the file contradicts the index.
            StreamplugError: If the header cannot be fetched.
        """
