"""Values as they are stored: read, and written again, without being decoded."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamplug.errors import EncodeTypeError
from streamplug.interfaces import (
    Column,
    Encoding,
    ShardInfo,
    ShardReader,
    ShardWriter,
    WritableFormat,
    WriteSettings,
)
from streamplug.interfaces.encoding import EncodedBytes, slices
from streamplug.types import Bytes1D, ColumnValues, Int64
from streamplug.write.columns import format_of


class RawEncoding(Encoding):
    """An encoding whose values are the stored forms of those of another."""

    def __init__(self, size: int | None) -> None:
        """Take values of so many bytes, or of any number for None."""
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

    def decode_batch(self, buffer: EncodedBytes, starts: Int64, sizes: Int64) -> ColumnValues:
        return [data.tobytes() for data in slices(buffer, starts, sizes)]


def keep_raw(encoding: Encoding) -> Encoding:
    """Decode a column to what is stored of it; a `Decoder`."""
    return RawEncoding(encoding.size)


def same_encoding(one: Encoding, other: Encoding) -> bool:
    """Say whether two encodings store values alike, whatever they are called."""
    return type(one) is type(other) and pickle.dumps(one) == pickle.dumps(other)


def decode_values(encoding: Encoding, values: Sequence[bytes | None]) -> list[Any]:
    """Return what stored values stand for; None stays None."""
    decode = encoding.decode
    return [None if value is None else decode(memoryview(value)) for value in values]


class RawFormat(WritableFormat):
    """A format for writing that is given the stored values of some columns."""

    def __init__(self, spec: str, stored: Iterable[str]) -> None:
        """Write the format `spec`; `stored` names the columns."""
        self._spec, self._stored = spec, frozenset(stored)
        self._inner = format_of(spec)
        self.suffix = self._inner.suffix  # type: ignore[misc]  # that of a class, else
        self.encodings = self._inner.encodings  # type: ignore[misc]  # likewise

    def __reduce__(self) -> tuple[Any, ...]:
        return RawFormat, (self._spec, sorted(self._stored))

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        """Return what the format itself does."""
        return self._inner.columns(entry, make_encoding)

    def open(
        self, shard: ShardInfo, files: Mapping[str, Bytes1D], columns: Sequence[Column]
    ) -> ShardReader:
        """Return what the format itself does."""
        return self._inner.open(shard, files, columns)

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        """Return a writer that takes the stored values of some columns as they are."""
        raw_columns = [
            replace(column, encoding=keep_raw(column.encoding))
            if column.name in self._stored
            else column
            for column in columns
        ]
        return self._inner.writer(raw_columns, settings)
