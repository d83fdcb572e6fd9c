"""Format: how the samples of a shard lie in its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.interfaces.encoding import Encoding
from streamplug.interfaces.scan import ScanFile, Scanned
from streamplug.interfaces.shard import Column, ShardInfo, WriteSettings
from streamplug.types import Buffer, Bytes1D, ColumnValues, Int64, Sample


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

    def row_of(self, columns: Sequence[Column]) -> Callable[[int], Sample]:
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


class ShardHead(ABC):
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
            data: A buffer in which their bytes lie. Read only, and only these: between them there may be
                nothing.
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


class Layout(ABC):
    """How samples lie in whole shards of one schema, to read those of many shards at once.

    May be used by several threads at once.
    """

    @abstractmethod
    def take(
        self,
        data: Bytes1D,
        shards: Int64,
        sizes: Int64,
        rows: Int64,
        columns: Sequence[Column],
    ) -> list[ColumnValues]:
        """Decode samples of several shards, in the order asked for.

        Args:
            data: A buffer in which the data files of all shards lie, each opened before without an
                error. Read only, and only within these files: between them there may be nothing. What
                they say may have changed since.
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
        data: Bytes1D,
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
        self, data: Bytes1D, shards: Int64, sizes: Int64, rows: Int64, column: Column
    ) -> tuple[Int64, Int64] | None:
        """Return where the encoded values of one column begin, and their sizes, each of shape ``[n]``.

        The default is None: they do not lie in one piece each. Arguments and errors are those of `take`.
        """
        return None


Rows: TypeAlias = "Buffer | Sequence[Sequence[Buffer]]"
"""Stored rows, which nobody may change later: back to back in one buffer, or each in pieces."""


class ShardWriter(ABC):
    """Lays out the samples of one data set, one shard at a time, as bytes.

    Attributes:
        base_size: Bytes that each shard has besides its rows, as counted against the size limit.
        row_overhead: The same for each row.
        max_size: Bytes that a shard's file can address; None without a bound.
    """

    base_size: int
    row_overhead: int
    max_size: int | None = None

    @abstractmethod
    def encode(self, sample: Mapping[str, Any]) -> bytes:
        """Return the stored row of a sample.

        Raises:
            EncodeError: If columns are missing or unknown, or a value cannot be stored; the message
                names the column, what it takes, and what it got.
        """

    def encode_parts(self, sample: Mapping[str, Any]) -> tuple[Sequence[Buffer], int]:
        """Return the same in pieces, which nobody may change later, and its size.

        So that large values need not be copied to one place. The default has a single piece.

        Raises:
            EncodeError: As for `encode`.
        """
        row = self.encode(sample)
        return (row,), len(row)

    @abstractmethod
    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[Rows, Int64]:
        """Return the stored rows of many samples, and the size of each row.

        Raises:
            EncodeError: As for `encode`, or if the columns differ in length.
        """

    @abstractmethod
    def assemble(self, parts: Sequence[Buffer], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        """Return the content of a shard's files by role, as buffers to be written one by one.

        Args:
            parts: The rows back to back, in any number of pieces.
            sizes: Bytes of each row, shape ``[samples]``.
        """

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the keys that this format adds to a shard's entry in the index."""


class Format(ABC):
    """A layout of shards: reads their entries in the index, opens them, and writes them.

    Attributes:
        api_version: Version of this interface that a subclass was written for.
        suffix: Ending of a raw data file's name, without a dot.
        roles: The files of a shard. The index holds ``raw_<role>`` and ``zip_<role>`` for each.
        head_role: Which of them `head_range` is of; the samples lie in ``"data"`` in any case.
        encodings: The encodings that its columns can have, by spec, where they are none of those that are
            registered; empty for a format that takes these.
        takes_arrow: Whether its writer takes arrays of Arrow as the columns of a batch.
    """

    api_version: ClassVar[int] = 1
    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    head_role: ClassVar[str] = "data"
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    takes_arrow: ClassVar[bool] = False

    @classmethod
    def from_spec(cls, argument: str | None) -> Format:
        """Make the format; the default takes nothing after its name.

        Raises:
            ConfigError: If the argument has no meaning here.
        """
        if argument is not None:
            raise ConfigError(f"format {cls.__name__} takes no argument, got {argument!r}")
        return cls()

    @abstractmethod
    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Return the columns that a shard's entry in the index announces.

        Args:
            entry: The entry, as parsed from JSON; nothing in it has been checked yet.
            make_encoding: Makes the encoding of (column name, spec); its errors need no handling.

        Raises:
            InvalidIndexError: If the entry is not one of this format.
        """

    def check(self, samples: int, role: str, size: int) -> None:  # noqa: B027 - optional
        """Check that so many samples can lie in a raw file of `size` bytes; the default is content.

        Raises:
            InvalidIndexError: If they cannot.
        """

    @abstractmethod
    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Open a shard for reading.

        Args:
            shard: What the index says of it.
            files: Content of its raw files by role; mapped, read only.
            columns: All of its columns, as `columns` returned them.

        Raises:
            CorruptShardError: If the files are not what the index says.
        """

    def layout(self, columns: Sequence[Column]) -> Layout | None:
        """Return what reads samples of many shards at once, which is faster where shards are many.

        The default is None: they are read shard by shard.

        Args:
            columns: All columns of the shards, as `columns` returned them.
        """
        return None

    def head_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        """Return which bytes of a shard's raw file of `head_role` say where its samples lie.

        A format that can tell, and whose samples lie each in one piece of the data file, can be read
        without fetching whole files. The default is None: it cannot.
        """
        return None

    def likely_ranges(
        self, shard: ShardInfo, rows: Int64, columns: Sequence[Column]
    ) -> Int64 | None:
        """Guess from the index where samples lie, so that they can be asked for along with the head.

        A sample that turns out to lie elsewhere is asked for again. The default is None: no idea. Nobody
        asks if the head is not in the data file.

        Args:
            shard: What the index says of it.
            rows: Which samples, shape ``[n]``.
            columns: All of its columns, as `columns` returned them.

        Returns:
            Where in the data file each may begin and end, int64, shape ``[n, 2]``; what is outside of
            the file is left out.
        """
        return None

    def open_head(self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]) -> ShardHead:
        """Open a shard of which only the head was read; called if `head_range` is not None.

        Args:
            shard: What the index says of it.
            head: The bytes of `head_range`; read only.
            columns: All of its columns, as `columns` returned them.

        Raises:
            CorruptShardError: If the head is not what the index says.
        """
        raise NotImplementedError(f"{type(self).__name__} has a head_range, but no open_head")

    def scan(self, file: ScanFile) -> Scanned:
        """Look through a data file for which there is no index.

        The default refuses: all is in the index.

        Args:
            file: What to read.

        Raises:
            ConfigError: If files of this format cannot be read without an index.
            CorruptShardError: If the file is damaged; the message names the place.
        """
        raise ConfigError(f"{type(self).__name__} cannot be read without an index.json")

    def united(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the entry that all files of one data set get, from those that `scan` gave.

        The default takes the first, and refuses others.

        Raises:
            InvalidIndexError: If they cannot be one data set.
        """
        if any(entry != entries[0] for entry in entries):
            raise InvalidIndexError("the files do not all have the same columns")
        return entries[0]

    def encoding_of(self, values: Any) -> str | None:
        """Return the encoding that fits values of a column best; None leaves that to their Python types."""
        return None

    @abstractmethod
    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer of shards with these columns."""
