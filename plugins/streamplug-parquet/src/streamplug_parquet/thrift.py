"""Parser of column metadata in Parquet footers: the compact protocol of Thrift.

pyarrow parses it, too, but a damaged footer makes it abort the process.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, overload

from streamplug.errors import CorruptShardError

_DEEPEST = 32
_MAX_SCHEMA_DEPTH = 100
_DAMAGED = (IndexError, KeyError, TypeError, ValueError, OverflowError, AttributeError)

Buffer: TypeAlias = "bytes | memoryview"


class Bytes(Protocol):
    """Bytes, or what is read like them."""

    def __len__(self) -> int:
        """Return the number of bytes."""

    @overload
    def __getitem__(self, key: int, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Buffer: ...


Struct = dict[int, Any]
"""Fields of a struct by field id."""


class Chunk(NamedTuple):
    """Metadata of a column chunk.

    Attributes:
        name: Name of the top-level column.
        stored: Bytes in the file.
        size: Bytes after decompression.
        missing: Whether there are nulls, or no null count; False without values.
        has_levels: Whether definition levels are counted, and with them missing structs of dictionaries.
        values: Number of values, with missing ones.
        start: Position of the first page in the file.
        codec: Number of the compression.
        is_encrypted: Whether its pages are.
    """

    name: str
    stored: int
    size: int
    missing: bool
    has_levels: bool
    values: int
    start: int
    codec: int
    is_encrypted: bool


def chunks_of(data: bytes) -> Sequence[Sequence[Chunk]]:
    """Return the column chunks of each row group, given the end of a file.

    Raises:
        CorruptShardError: If the footer is damaged.
    """
    try:
        footer = _footer(data)
        return [[_chunk(column) for column in group[1]] for group in footer[4]]
    except _DAMAGED as error:
        kind = type(error).__name__
        raise CorruptShardError(f"its footer is damaged: {kind}: {error}") from error


def check_schema_depth(data: bytes) -> None:
    """Refuse a schema that is nested so deeply that pyarrow would crash, given the end of a file.

    Raises:
        CorruptShardError: If it is, or the footer is damaged.
    """
    open_groups: list[int] = []
    try:
        for element in _footer(data)[2]:
            if len(open_groups) > _MAX_SCHEMA_DEPTH:
                break
            open_groups.append(int(element.get(5, 0)))
            while open_groups and open_groups[-1] <= 0:
                open_groups.pop()
                if open_groups:
                    open_groups[-1] -= 1
    except _DAMAGED as error:
        kind = type(error).__name__
        raise CorruptShardError(f"its footer is damaged: {kind}: {error}") from error
    if len(open_groups) > _MAX_SCHEMA_DEPTH:
        raise CorruptShardError(f"its schema is nested more than {_MAX_SCHEMA_DEPTH} times")


def _footer(data: bytes) -> Struct:
    size = int.from_bytes(data[-8:-4], "little")
    return _Compact(data[len(data) - 8 - size : -8]).struct(0)


def _chunk(chunk: Struct) -> Chunk:
    is_encrypted = 8 in chunk
    if is_encrypted and 3 not in chunk:
        raise CorruptShardError("it has encrypted columns, which cannot be read")
    column = chunk[3]
    stored, size = int(column[7]), int(column[6])
    if stored < 0 or size < 0:
        raise ValueError(f"a size of {min(stored, size)} bytes")
    values = int(column[5])
    levels = column.get(16, {}).get(3, ())
    missing = values > 0 and (column.get(12, {}).get(3) != 0 or sum(levels[:-1]) > 0)
    start, dictionary = int(column[9]), int(column.get(11, 0))
    if 0 < dictionary < start:
        start = dictionary
    if start < 0:
        raise ValueError(f"a start of {start}")
    name = column[3][0].decode()
    codec = int(column[4])
    return Chunk(name, stored, size, missing, bool(levels), values, start, codec, is_encrypted)


def parse_struct(data: Bytes, start: int) -> tuple[Struct, int]:
    """Return the fields of a struct in a buffer, and where it ends.

    Raises:
        CorruptShardError: If it is damaged.
    """
    parser = _Compact(data, start)
    try:
        return parser.struct(0), parser.position
    except _DAMAGED as error:
        kind = type(error).__name__
        raise CorruptShardError(f"the header of a page is damaged: {kind}: {error}") from error


class _Compact:
    """Parses a buffer from start to end."""

    def __init__(self, data: Bytes, start: int = 0) -> None:
        self._data, self._at = data, start

    @property
    def position(self) -> int:
        """Position after what was parsed."""
        return self._at

    def struct(self, depth: int) -> Struct:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        data, fields, field = self._data, {}, 0
        while head := data[self._at]:
            self._at += 1
            step = head >> 4
            field = field + step if step else self.number(depth)
            kind = head & 15
            fields[field] = kind == 1 if kind < 3 else _READ[kind](self, depth + 1)
        self._at += 1
        return fields

    def _varint(self) -> int:
        data, at = self._data, self._at
        part = data[at]
        at += 1
        value, shift = part & 127, 7
        while part > 127:
            if shift > 63:
                raise ValueError("a number of too many bytes")
            part = data[at]
            at += 1
            value |= (part & 127) << shift
            shift += 7
        self._at = at
        return value

    def number(self, _depth: int) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def byte(self, _depth: int) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def double(self, _depth: int) -> float:
        self._at += 8
        if self._at > len(self._data):
            raise IndexError("a number beyond the end")
        number: float = struct.unpack("<d", self._data[self._at - 8 : self._at])[0]
        return number

    def binary(self, _depth: int) -> Buffer:
        size = self._varint()
        self._at += size
        if self._at > len(self._data):
            raise IndexError("a text beyond the end")
        return self._data[self._at - size : self._at]

    def list(self, depth: int) -> Sequence[Any]:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        head = self.byte(depth)
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._varint()
        if count > len(self._data) - self._at:  # an item has at least one byte
            raise IndexError("a list beyond the end")
        if kind < 3:
            return [self.byte(depth) == 1 for _ in range(count)]
        read = _READ[kind]
        return [read(self, depth + 1) for _ in range(count)]


_READ: dict[int, Callable[[_Compact, int], Any]] = {
    3: _Compact.byte,
    4: _Compact.number,
    5: _Compact.number,
    6: _Compact.number,
    7: _Compact.double,
    8: _Compact.binary,
    9: _Compact.list,
    10: _Compact.list,
    12: _Compact.struct,
}
"""Parsers by wire type; footers have no maps."""
