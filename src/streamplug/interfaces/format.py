"""Shard formats: their columns and shards, readers, writers, and further optional roles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

import numpy as np

from streamplug.errors import (
    PluginError,
    class_name,
)
from streamplug.interfaces.encoding import Encoding, GatherBuffer
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.storage import Storage
from streamplug.types import Buffer, Bytes1D, ColumnValues, FileInfo, Int64, Sample

if TYPE_CHECKING:
    from streamplug.index import Index


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a data set: its name, its encoding's spec in the index, and the encoding.

    Raises:
        PluginError: If the encoding's dtype has another size than its values.
    """

    name: str
    spec: str
    encoding: Encoding

    def __post_init__(self) -> None:
        dtype, size = self.encoding.dtype, self.encoding.size
        if dtype is not None and dtype.itemsize != size:
            kind = class_name(type(self.encoding))
            raise PluginError(
                f"column {self.name!r} ({self.spec}): {kind} has size={size} and dtype={dtype}, whose values "
                f"have {dtype.itemsize} bytes; set size = dtype.itemsize, or dtype = None"
            )


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A file of a shard: uncompressed, and compressed if it is stored so."""

    raw: FileInfo
    zip: FileInfo | None


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """Metadata of one shard from the index.

    Attributes:
        number: Position among the shards of its stream, from 0.
        samples: Number of samples; may be 0.
        files: Its files by role; most formats have only ``"data"``.
    """

    number: int
    samples: int
    files: Mapping[str, ShardFile]

    @property
    def basename(self) -> str:
        """Name of the first raw file."""
        return next(iter(self.files.values())).raw.basename

    @property
    def raw_bytes(self) -> int:
        """Bytes of the raw files."""
        return sum(file.raw.bytes for file in self.files.values())


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Settings of the writer that a format may repeat in its files."""

    compression: str | None
    hashes: tuple[str, ...]
    size_limit: int | None


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


RowPiece: TypeAlias = Any
"""A part of the buffered rows: bytes, or any object in a columnar format."""

EncodedRows: TypeAlias = "Buffer | list[Sequence[RowPiece]] | ColumnarRows"
"""Immutable encoded rows: back to back in a buffer, each in pieces, or columnar."""


class ColumnarRows(Protocol):
    """Columnar rows, such as an Arrow table; a slice of them is a piece."""

    def __getitem__(self, rows: slice, /) -> RowPiece:
        """Return a slice of the rows."""


class ShardWriter(ABC):
    """Lays out the samples of a data set as bytes, one shard at a time.

    Samples are encoded as rows and buffered until a shard is full. A columnar format may use rows that
    are not bytes: it gets the results of `encode` and `encode_batch` back in `pack` and `assemble`.

    Attributes:
        base_size: Bytes of a shard besides its rows, counted against the size limit.
        row_overhead: Bytes of a row besides its content, counted likewise.
        max_size: Largest file size that a shard can address in bytes; None if unlimited.
    """

    base_size: int
    row_overhead: int
    max_size: int | None = None

    @abstractmethod
    def encode(self, sample: Mapping[str, Any]) -> RowPiece:
        """Return the encoded row of a sample, in one piece.

        Raises:
            EncodeError: If columns are missing or unknown, or a value cannot be stored; the message names
                the column, what it accepts, and what it got.
        """

    def encode_pieces(self, sample: Mapping[str, Any]) -> tuple[Sequence[RowPiece], int]:
        """Return the encoded row of a sample in immutable pieces, and its size.

        Pieces avoid copies of large values. The default returns one piece.

        Raises:
            EncodeError: As for `encode`.
        """
        row = self.encode(sample)
        return (row,), len(row)

    @abstractmethod
    def encode_batch(self, columns: Mapping[str, Any]) -> tuple[EncodedRows, Int64]:
        """Return the encoded rows of many samples, and the size of each row.

        Raises:
            EncodeError: As for `encode`, or if the columns differ in length.
        """

    def pack(self, pieces: Sequence[RowPiece]) -> Sequence[RowPiece]:
        """Return rows in fewer or smaller pieces; the default returns them unchanged.

        Called for all rows before `assemble`, with a few thousand pieces at a time, of samples or of
        batches.
        """
        return pieces

    def value_sizes(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Int64]:
        """Return the bytes of each value of the columns of whole numbers in arrays that vary in length.

        They are stored beside the shards, for readers that need the lengths of the arrays. The default is
        that of formats without such columns. Arguments are those of `assemble`.
        """
        return {}

    @abstractmethod
    def assemble(self, parts: Sequence[RowPiece], sizes: Int64) -> Mapping[str, Sequence[Buffer]]:
        """Return the content of a shard's files by role, as buffers to be written in order.

        Args:
            parts: The rows back to back, in any number of pieces, as returned by `pack`.
            sizes: Bytes of each row, shape ``[samples]``.
        """

    @abstractmethod
    def entry(self) -> dict[str, Any]:
        """Return the keys that this format adds to a shard's index entry; mappings lose their order there."""


class Format(Plugin):
    """A shard format: parses the shard entries of an index, and opens shards.

    A format that does more than read whole shards also subclasses some of the classes below::

        class MyFormat(WritableFormat, RangeReadableFormat): ...

    Instances pickle.

    Attributes:
        suffix: File name suffix of a raw data file, without a dot.
        roles: Roles of a shard's files. The index holds ``raw_<role>`` and ``zip_<role>`` for each.
        encodings: Valid encodings by spec; empty if all registered encodings are.
        key: Name of the ``str`` column with unique values that every data set of this format has; None if
            there is none.
        source: Name of the source that opens data of this format.
        is_composed: Whether the file ``data`` of a shard consists of several stored files, which
            `wrap_storage` serves as one.
        access_in_place: Name of the access that reads the shards of a data set in place, without a cache;
            None for that of the stream.
    """

    suffix: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ("data",)
    encodings: ClassVar[Mapping[str, Encoding]] = {}
    key: ClassVar[str | None] = None
    source: ClassVar[str] = "index"
    is_composed: ClassVar[bool] = False
    access_in_place: ClassVar[str | None] = None

    @abstractmethod
    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Return the columns of a shard.

        Args:
            entry: The shard's entry in the index, parsed from JSON but not validated.
            make_encoding: Returns the encoding of (column name, spec); let its errors propagate.

        Raises:
            InvalidIndexError: If the entry is not valid in this format.
        """

    def check(self, samples: int, role: str, size: int) -> None:
        """Check that a raw file of `size` bytes can hold this number of samples; the default accepts any.

        Raises:
            InvalidIndexError: If it cannot.
        """

    @abstractmethod
    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Open a shard for reading.

        Args:
            shard: The shard's metadata from the index.
            files: Memory maps of its raw files by role; read only.
            columns: All of its columns, as returned by `columns`.

        Raises:
            CorruptShardError: If the files contradict the index.
        """

    def multi_shard_reader(self, columns: Sequence[Column]) -> MultiShardReader | None:
        """Return a reader for samples of many shards at once; None to read shard by shard.

        It may also read shards of other data sets, of a format with the same class, name and argument and
        with the same names and encodings of columns.

        Args:
            columns: All columns of the shards, as returned by `columns`.
        """
        return None

    def wrap_storage(self, storage: Storage, index: Index, derived: Path | None) -> Storage:
        """Return a storage that serves the files of shards; the default is that of the data set itself.

        Args:
            storage: The storage of the data set.
            index: Its index.
            derived: Directory of the files that were made with the index, if any.
        """
        return storage


class WritableFormat(Format):
    """A format that shards can be written in.

    Attributes:
        takes_arrow: Whether its writer accepts Arrow arrays as the columns of a batch.
    """

    takes_arrow: ClassVar[bool] = False

    @abstractmethod
    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer of shards with these columns."""

    def infer_encoding(self, values: Any) -> str | None:
        """Return the spec for the values of a column; None to infer it from their Python types."""
        return None


class RangeReadableFormat(Format):
    """A format whose samples can be read by range, each being contiguous in the file ``data``.

    Attributes:
        header_role: Role of the file with the header.
    """

    header_role: ClassVar[str] = "data"

    @abstractmethod
    def header_range(self, shard: ShardInfo) -> tuple[int, int] | None:
        """Return the bytes ``(start, stop)`` of the header that locates the samples.

        None if this shard can only be read as a whole.
        """

    @abstractmethod
    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        """Open a shard of which only the header was read.

        Args:
            shard: The shard's metadata from the index.
            head: The bytes of `header_range`; read only.
            columns: All of its columns, as returned by `columns`.

        Raises:
            CorruptShardError: If the header contradicts the index.
        """

    def estimate_ranges(
        self, shard: ShardInfo, rows: Int64, columns: Sequence[Column]
    ) -> Int64 | None:
        """Estimate the byte ranges of samples from the index, to download them together with the header.

        A sample outside its estimate is downloaded again. Called only if the header is in the file
        ``data``.

        Args:
            shard: The shard's metadata from the index.
            rows: Sample numbers, shape ``[n]``.
            columns: All of its columns, as returned by `columns`.

        Returns:
            Estimated start and end in the file, int64, shape ``[n, 2]``; None for no estimate.
        """
        return None
