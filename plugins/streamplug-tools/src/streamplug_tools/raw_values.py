"""Reading and writing of stored values without decoding."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamplug.errors import EncodeTypeError
from streamplug.interfaces import (
    MAX_VALUE_BYTES,
    Column,
    Encoding,
    GatherBuffer,
    ShardInfo,
    ShardReader,
    ShardWriter,
    VectorColumn,
    WritableFormat,
    WriteSettings,
)
from streamplug.plugin import is_known, resolve
from streamplug.types import Bytes1D, ColumnValues, Int64
from streamplug.write import format_of
from streamplug_tools.format_detection import list_formats


class RawEncoding(Encoding):
    """Encoding whose values are the stored bytes of another encoding."""

    def __init__(self, size: int | None) -> None:
        """Take values of a fixed size in bytes, or of any size for None."""
        self.size = size

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            what = "no value" if value is None else f"a {type(value).__name__}"
            raise EncodeTypeError(
                f"a sample has {what} here, and every sample must have one: leave the column out"
            )
        return value

    def decode(self, data: memoryview) -> bytes:
        return bytes(data)

    def decode_batch(self, buffer: GatherBuffer, starts: Int64, sizes: Int64) -> ColumnValues:
        return [data.tobytes() for data in buffer.slices(starts, sizes)]


class RawVector(RawEncoding, VectorColumn):
    """Encoding of the stored bytes of vectors, of which writers store the sizes."""

    def __init__(self, stored: VectorColumn, size: int | None) -> None:
        """Take values of another encoding."""
        super().__init__(size)
        self._stored, self.item = stored, stored.item

    def lengths(self, sizes: Int64, dtype: np.dtype[Any]) -> Int64:
        return self._stored.lengths(sizes, dtype)


def keep_raw(encoding: Encoding) -> Encoding:
    """Return a decoder to the stored bytes."""
    return RawEncoding(encoding.size)


def _take_raw(encoding: Encoding) -> Encoding:
    """Return an encoding that writes the stored bytes of another one."""
    if isinstance(encoding, VectorColumn):
        return RawVector(encoding, encoding.size)
    return RawEncoding(encoding.size)


def same_encoding(one: Encoding, other: Encoding) -> bool:
    """Return whether two encodings store values identically; the bounds of decoded values may differ."""
    if type(one) is not type(other):
        return False
    # `max_value_bytes` of a stream makes other encodings of its columns, which store values alike.
    one, other = (encoding.with_max_value_bytes(MAX_VALUE_BYTES) for encoding in (one, other))
    return pickle.dumps(one) == pickle.dumps(other)


def has_own_encoding(column: Column) -> bool:
    """Return whether the encoding of a column is one of a format, such as text, and not of all others.

    The values of such a column are not stored as encoded bytes. A view can have columns of both kinds.
    """
    name = column.spec.partition(":")[0]
    if is_known("encoding", name) and type(column.encoding) is resolve("encoding", name):
        return False
    own = (cls.encodings for _, cls in list_formats() if column.spec in cls.encodings)
    return any(type(column.encoding) is type(encodings[column.spec]) for encodings in own)


def decode_values(encoding: Encoding, values: Sequence[bytes | None]) -> list[Any]:
    """Decode stored values; None stays None."""
    decode = encoding.decode
    return [None if value is None else decode(memoryview(value)) for value in values]


class RawFormat(WritableFormat):
    """Format whose writer takes stored values for some columns."""

    def __init__(self, inner: str | WritableFormat, stored: Iterable[str]) -> None:
        """Write a format, or the format of this name; `stored` names those columns."""
        self._stored = frozenset(stored)
        self._inner = format_of(inner)
        self.suffix = self._inner.suffix  # type: ignore[misc]  # a class variable of the base
        self.encodings = self._inner.encodings  # type: ignore[misc]  # as above

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by its name, which may be registered only after this was unpickled.
        return RawFormat, (self._inner, sorted(self._stored))

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Delegate to the format."""
        return self._inner.columns(entry, make_encoding)

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Delegate to the format."""
        return self._inner.open(shard, files, columns)

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer that takes stored values for some columns."""
        raw_columns = [
            replace(column, encoding=_take_raw(column.encoding))
            if column.name in self._stored
            else column
            for column in columns
        ]
        return self._inner.writer(raw_columns, settings)
