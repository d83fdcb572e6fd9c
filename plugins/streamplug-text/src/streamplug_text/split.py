"""Shards of two files: a line per sample, and a meta file with the offsets of the lines.

The meta file has, all integers little-endian::

    uint32            N, the number of samples
    uint32[N + 1]     offset of each line in the data file; the last is the file's length
    JSON              the schema, as in the index

The data file may begin with a header.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import msgspec
import numpy as np
from streamplug_files import ScannableFormat, ScanResult, ScanSource

from streamplug.errors import CorruptShardError, DataError, InvalidIndexError
from streamplug.interfaces import (
    Column,
    RangeReadableFormat,
    ShardHeader,
    ShardInfo,
    ShardReader,
    WritableFormat,
)
from streamplug.plugin_kit import decode_values, undecodable_error
from streamplug.types import Bytes1D, ColumnValues, Int64, Sample
from streamplug_text.values import FieldValue

Offsets = np.ndarray[Any, np.dtype[np.uint32]] | np.ndarray[Any, np.dtype[np.uint64]]

U32 = np.dtype("<u4")
MAX_FILE = (1 << 32) - 1

_MIN_BATCH_SAMPLES = 8
"""Minimum samples for parsing them together."""


def head_size(samples: int) -> int:
    """Return the bytes of a meta file without its schema."""
    return 4 * (samples + 2)


class Lines(ABC):
    """Parser of lines.

    Columns with other encodings get the bytes of their values.

    Attributes:
        header: Header of the data file.
    """

    header: bytes = b""

    @abstractmethod
    def one(self, line: bytes, columns: Sequence[Column]) -> list[Any]:
        """Return the values of a sample.

        Raises:
            DataError: If the line is damaged.
        """

    @abstractmethod
    def many(
        self, data: Bytes1D, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[list[Any]]:
        """Return the values of many samples by column, equal to those of `one`.

        Args:
            data: A buffer with their lines.
            starts: Offset of each line, shape ``[n]``.
            sizes: Bytes of each line, shape ``[n]``.
            columns: Columns to return.

        Raises:
            Exception: Any, if the lines must be parsed one by one.
        """


HIDDEN_NAMES = r"\.|_(?:delta_log|spark_metadata|temporary)/"
"""Hidden files, and directories in which Spark and Delta Lake keep their records."""


class SplitFormat(WritableFormat, ScannableFormat, RangeReadableFormat):
    """Base class of formats with a data file and a meta file."""

    hidden_names: ClassVar[str] = HIDDEN_NAMES
    roles: ClassVar[tuple[str, ...]] = ("data", "meta")
    header_role: ClassVar[str] = "meta"

    @abstractmethod
    def lines(self, columns: Sequence[Column]) -> Lines:
        """Return the parser of a shard's lines."""

    @abstractmethod
    def plain(self) -> ScannableFormat:
        """Return the format of plain files of such lines."""

    def scan(self, file: ScanSource) -> ScanResult:
        return self.plain().scan(file)

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return self.plain().merge_entries(entries)

    def check(self, samples: int, role: str, size: int) -> None:
        least = head_size(samples) if role == "meta" else samples
        if least > size or size > MAX_FILE:
            raise InvalidIndexError(
                f"{samples} samples cannot lie in a {role} file of {size} bytes"
            )

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        data, meta = files["data"], files["meta"]
        lines = self.lines(columns)
        offsets = _offsets(meta, shard.samples, len(data), len(lines.header))
        _check_schema(meta[head_size(shard.samples) :])
        if data[: len(lines.header)].tobytes() != lines.header:
            raise CorruptShardError("its header does not name the columns that the index names")
        return SplitReader(data, SplitHeader(offsets, lines))

    def header_range(self, shard: ShardInfo) -> tuple[int, int]:
        return 0, head_size(shard.samples)

    def open_header(
        self, shard: ShardInfo, head: Bytes1D, columns: Sequence[Column]
    ) -> ShardHeader:
        lines, size = self.lines(columns), shard.files["data"].raw.bytes
        return SplitHeader(_offsets(head, shard.samples, size, len(lines.header)), lines)


class SplitHeader(ShardHeader):
    """Offsets of the samples of one shard.

    Attributes:
        offsets: Offset of each line, and the end of the last, uint32 or uint64, shape
            ``[samples + 1]``.
    """

    def __init__(self, offsets: Offsets, lines: Lines) -> None:
        """Set checked offsets, and the parser of the lines."""
        self.offsets = offsets
        self._lines = lines

    def called(self, index: int) -> str:
        """Return the name of a sample for errors."""
        return f"sample {index}"

    def byte_ranges(self, rows: Int64) -> Int64:
        return np.stack([self.offsets[rows], self.offsets[rows + 1]], axis=1).astype(np.int64)

    def take(
        self, rows: Int64, data: Bytes1D, starts: Int64, columns: Sequence[Column]
    ) -> list[ColumnValues]:
        sizes = (self.offsets[rows + 1] - self.offsets[rows]).astype(np.int64)
        values = self._values_of(rows, data, starts, sizes, columns)
        return [
            values
            if isinstance(column.encoding, FieldValue)
            else self._decoded(column, rows, values)
            for column, values in zip(columns, values)
        ]

    def _values_of(
        self, rows: Int64, data: Bytes1D, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[list[Any]]:
        if len(rows) >= _MIN_BATCH_SAMPLES:
            with suppress(Exception):  # the fallback parses them one by one
                return self._lines.many(data, starts, sizes, columns)
        lines = [
            self.one(row, data[at : at + size].tobytes(), columns)
            for row, at, size in zip(rows.tolist(), starts.tolist(), sizes.tolist())
        ]
        return [[values[number] for values in lines] for number in range(len(columns))]

    def one(self, index: int, line: bytes, columns: Sequence[Column]) -> list[Any]:
        """Return the values of one sample, as `Lines.one` does; errors name it."""
        try:
            return self._lines.one(line, columns)
        except DataError as error:
            raise type(error)(f"{self.called(index)}: {error}") from error.__cause__

    def decoded(self, column: Column, index: int, value: bytes) -> Any:
        """Decode a value with another encoding."""
        try:
            return column.encoding.decode(memoryview(value))
        except Exception as error:
            raise undecodable_error(self._named(index, column), error) from error

    def _decoded(self, column: Column, rows: Int64, values: Sequence[bytes]) -> ColumnValues:
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        data, starts = np.frombuffer(b"".join(values), np.uint8), np.cumsum(sizes) - sizes
        where = partial(self._named, column=column)
        return decode_values(column, rows, data, starts, sizes, where=where)

    def _named(self, index: int, column: Column) -> str:
        return f"{self.called(index)}, column {column.name!r}"


class SplitReader(ShardReader):
    """Reads one shard from its files."""

    def __init__(self, data: Bytes1D, head: SplitHeader) -> None:
        self._data = data
        self._view = memoryview(data)  # type: ignore[arg-type]  # an array is a buffer
        self._head = head
        self._bounds = memoryview(head.offsets)  # type: ignore[arg-type]  # an array is a buffer
        self._row_plan: tuple[Any, list[str], list[Column]] = None, [], []

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def byte_range(self, index: int) -> tuple[int, int]:
        return self._bounds[index], self._bounds[index + 1]

    def row(self, index: int, columns: Sequence[Column]) -> Sample:
        line = bytes(self._view[self._bounds[index] : self._bounds[index + 1]])
        planned, names, others = self._row_plan
        if planned is not columns:
            names = [column.name for column in columns]
            others = [column for column in columns if not isinstance(column.encoding, FieldValue)]
            self._row_plan = columns, names, others
        sample = dict(zip(names, self._head.one(index, line, columns)))
        for column in others:
            sample[column.name] = self._head.decoded(column, index, sample[column.name])
        return sample

    def take(self, rows: Int64, columns: Sequence[Column]) -> list[ColumnValues]:
        starts = self._head.offsets[rows].astype(np.int64)
        return self._head.take(rows, self._data, starts, columns)


def _offsets(meta: Bytes1D, samples: int, size: int, header: int) -> Offsets:
    """Return the offsets of the lines of a shard, and the end of the last.

    Args:
        meta: The meta file, or at least its first `head_size` bytes.
        samples: Number of samples according to the index.
        size: Bytes of the data file.
        header: Bytes of the header of the data file.
    """
    if len(meta) < head_size(samples):
        raise CorruptShardError(
            f"a meta file of {len(meta)} bytes cannot place the {samples} samples of the index"
        )
    count = int(meta[:4].view(U32)[0])
    if count != samples:
        raise CorruptShardError(f"its meta file places {count} samples, the index says {samples}")
    offsets = meta[4 : head_size(samples)].view(U32)
    if offsets[0] != header or offsets[-1] != size:
        raise CorruptShardError(
            f"its meta file says that samples span bytes {offsets[0]} to {offsets[-1]}, but they span "
            f"{header} to {size}"
        )
    if samples and (wrong := offsets[1:] < offsets[:-1]).any():
        raise CorruptShardError(f"sample {int(wrong.argmax())} ends before it begins")
    return offsets


def _check_schema(text: Bytes1D) -> None:
    """Check that the schema of a meta file is complete, though it is not needed for reading."""
    try:
        whole = isinstance(msgspec.json.decode(text.tobytes()), dict)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        whole = False
    if not whole:
        raise CorruptShardError("the schema at the end of its meta file is damaged")


def schema_text(entry: Mapping[str, Any]) -> bytes:
    """Return the schema of a meta file."""
    return json.dumps(entry, sort_keys=True).encode()
