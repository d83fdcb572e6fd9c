"""Format: how the samples of a shard lie in its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from streamplug.errors import ConfigError, InvalidIndexError
from streamplug.interfaces.encoding import Encoding
from streamplug.interfaces.scan import (
    DatasetFiles,
    FileListEntry,
    FileSelection,
    ScanResult,
    ScanSource,
)
from streamplug.interfaces.shard import Column, ShardInfo, WriteSettings
from streamplug.interfaces.shard_reader import MultiShardReader, ShardHeader, ShardReader
from streamplug.types import Buffer, Bytes1D, Int64

RowPiece: TypeAlias = Any
"""A part of the rows that a writer collects: bytes; in a format that stores by column, what it likes."""

EncodedRows: TypeAlias = "Buffer | list[Sequence[RowPiece]] | ColumnarRows"
"""Stored rows, which nobody may change later: back to back in a buffer, each in pieces, or by column."""


class ColumnarRows(Protocol):
    """Rows by column, such as a table of Arrow: a slice of them is a piece."""

    def __getitem__(self, rows: slice, /) -> RowPiece:
        """Return some of the rows."""


class ShardWriter(ABC):
    """Lays out the samples of one data set, one shard at a time, as bytes.

    Samples become rows, which are collected until a shard is full. A format that stores values by column can
    have rows that are no bytes: what `encode` and `encode_batch` give, it gets back in `pack` and `assemble`.

    Attributes:
        base_size: Bytes that each shard has besides its rows, as counted against the size limit.
        row_overhead: The same for each row.
        max_size: Bytes that a shard's file can address; None without a bound.
    """

    base_size: int
    row_overhead: int
    max_size: int | None = None

    @abstractmethod
    def encode(self, sample: Mapping[str, Any]) -> RowPiece:
        """Return the stored row of a sample, in one piece.

        Raises:
            EncodeError: If columns are missing or unknown, or a value cannot be stored; the message
                names the column, what it takes, and what it got.
        """

    def encode_pieces(self, sample: Mapping[str, Any]) -> tuple[Sequence[RowPiece], int]:
        """Return the same in pieces, which nobody may change later, and its size.

        So that large values need not be copied to one place. The default has a single piece.

        Raises:
            EncodeError: As for `encode`.
        """
        row = self.encode(sample)
        return (row,), len(row)

    @abstractmethod
    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        """Return the stored rows of many samples, and the size of each row.

        Raises:
            EncodeError: As for `encode`, or if the columns differ in length.
        """

    def pack(self, pieces: Sequence[RowPiece]) -> Sequence[RowPiece]:
        """Return some rows in fewer pieces, or in pieces that take less room; the default leaves them.

        All rows come here before `assemble`, a few thousand pieces at a time: of single samples, or of
        batches.
        """
        return pieces

    @abstractmethod
    def assemble(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        """Return the content of a shard's files by role, as buffers to be written one by one.

        Args:
            parts: The rows back to back, in any number of pieces, as `pack` gave them.
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
        head_role: Which of them `header_range` is of; the samples lie in ``"data"`` in any case.
        encodings: The encodings that its columns can have, by spec, where they are none of those that are
            registered; empty for a format that takes these.
        key: Name of the column that every data set of this format has, a ``str`` that differs from sample
            to sample; None if it needs none.
        bundles: Whether each sample is a file of its own; see `select_files`.
        takes_arrow: Whether its writer takes arrays of Arrow as the columns of a batch.
    """

    api_version: ClassVar[int] = 1
    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    header_role: ClassVar[str] = "data"
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    key: ClassVar[str | None] = None
    bundles: ClassVar[bool] = False
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

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        """Return how names of files without an index may end, raw and without a dot: by default `suffix`."""
        return (cls.suffix,)

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

    def multi_shard_reader(self, columns: Sequence[Column]) -> MultiShardReader | None:
        """Return what reads samples of many shards at once, which is faster where shards are many.

        The default is None: they are read shard by shard.

        Args:
            columns: All columns of the shards, as `columns` returned them.
        """
        return None

    def header_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        """Return which bytes of a shard's raw file of `header_role` say where its samples lie.

        A format that can tell, and whose samples lie each in one piece of the data file, can be read
        without fetching whole files. The default is None: it cannot.
        """
        return None

    def estimate_ranges(
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

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        """Open a shard of which only the head was read; called if `header_range` is not None.

        Args:
            shard: What the index says of it.
            head: The bytes of `header_range`; read only.
            columns: All of its columns, as `columns` returned them.

        Raises:
            CorruptShardError: If the head is not what the index says.
        """
        raise NotImplementedError(f"{type(self).__name__} has a header_range, but no open_header")

    def scan(self, file: ScanSource) -> ScanResult:
        """Look through a data file for which there is no index.

        The default refuses: all is in the index.

        Args:
            file: What to read.

        Raises:
            ConfigError: If files of this format cannot be read without an index.
            CorruptShardError: If the file is damaged; the message names the place.
        """
        raise ConfigError(f"{type(self).__name__} cannot be read without an index.json")

    def import_index(self, index: Any, files: DatasetFiles) -> Sequence[Mapping[str, Any]] | None:
        """Return what the index.json of another library says, as the entries of one of ours.

        Asked where a stream has this format, and its index.json is none of ours. The default is None: it
        is not one that this format knows.

        Args:
            index: What it says, as parsed from JSON; nothing in it has been checked yet.
            files: Those of the set, for what it does not say.

        Raises:
            ConfigError: If the set has what cannot be read.
            InvalidIndexError: If the index.json is damaged.
        """
        return None

    def is_file_list(self, name: str) -> bool:
        """Say whether a location of this name is a list of files for `parse_file_list`."""
        return False

    def file_list_names(self) -> Sequence[str]:
        """Return the names of lists to look for in a directory without an index.json; the first counts."""
        return ()

    def parse_file_list(self, name: str, content: bytes) -> Sequence[FileListEntry] | None:
        """Return which files another library's list names, in their order; None if it is no such list.

        Nothing of it is believed: files that have another size, or other numbers of samples, are errors.

        Args:
            name: That of the list.
            content: All of it; nothing in it has been checked yet.

        Raises:
            InvalidIndexError: If it is damaged, or of a version that is not known.
        """
        return None

    def select_files(self, names: Sequence[str]) -> FileSelection:
        """Say which of some files are samples, given all names, sorted; called if it has `bundles`.

        Raises:
            DataError: If they cannot be a data set; the message names one of them.
        """
        raise NotImplementedError(f"{type(self).__name__} has bundles, but does not choose files")

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the entry that all files of one data set get, from those that `scan` gave.

        The default takes the first, and refuses others.

        Raises:
            InvalidIndexError: If they cannot be one data set.
        """
        if any(entry != entries[0] for entry in entries):
            raise InvalidIndexError("the files do not all have the same columns")
        return entries[0]

    def infer_encoding(self, values: Any) -> str | None:
        """Return the encoding that fits values of a column best; None leaves that to their Python types."""
        return None

    @abstractmethod
    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer of shards with these columns."""
