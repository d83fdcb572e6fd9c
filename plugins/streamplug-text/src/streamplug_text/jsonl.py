"""A JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from streamplug.errors import ConfigError, CorruptShardError, DecodeError, InvalidIndexError
from streamplug.interfaces import Column, Encoding, ShardWriter, WriteSettings
from streamplug.interfaces.encoding import slices
from streamplug.types import Bytes1D, Int64
from streamplug_text.split import Lines, SplitFormat
from streamplug_text.values import JSON, Json
from streamplug_text.writing import LinesWriter

_SPACE = frozenset(" \t\r\n")


class JSONL(SplitFormat):
    """``json``, also ``jsonl``: the JSON shards of mosaicml-streaming, byte for byte."""

    suffix = "json"
    encodings: ClassVar[Mapping[str, Encoding]] = JSON

    def __init__(self, newline: str = "\n") -> None:
        """Write lines that end with `newline`; what is read says itself how they end.

        Raises:
            ConfigError: If that is not white space to JSON.
        """
        if not _is_space(newline):
            raise ConfigError(
                f"newline={newline!r}: JSON takes spaces, tabs, \\r and \\n between samples"
            )
        self._newline = newline

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        specs = entry.get("columns")
        if not isinstance(specs, dict) or not all(isinstance(s, str) for s in specs.values()):
            raise InvalidIndexError(f"columns must map names to encodings, got {specs!r:.60}")
        if not specs:
            raise InvalidIndexError("columns must be at least one")
        newline = entry.get("newline")
        if not _is_space(newline):
            raise InvalidIndexError(f"newline must be white space, got {newline!r:.60}")
        return tuple(Column(n, spec, make_encoding(n, spec)) for n, spec in sorted(specs.items()))

    def lines(self, columns: Sequence[Column]) -> Lines:
        return JSONLines()

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        return JSONLWriter(columns, settings, self._newline)


def _is_space(text: object) -> bool:
    return isinstance(text, str) and _SPACE.issuperset(text)


class JSONLines(Lines):
    """Lines that are JSON objects."""

    def __init__(self) -> None:
        self._last: tuple[Any, msgspec.json.Decoder[Any]] = None, _decoder(())

    def _decoder(self, columns: Sequence[Column]) -> msgspec.json.Decoder[Any]:
        known, decoder = self._last
        if known is not columns:
            decoder = _decoder(tuple((column.name, _type(column)) for column in columns))
            self._last = columns, decoder
        return decoder

    def one(self, line: bytes, columns: Sequence[Column]) -> list[Any]:
        try:
            found = msgspec.structs.astuple(self._decoder(columns).decode(line))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _with_care(line, columns)
        return [bytes(v) if isinstance(v, msgspec.Raw) else v for v in found]

    def many(
        self, data: Bytes1D, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[list[Any]]:
        found = list(map(self._decoder(columns).decode, slices(data, starts, sizes)))
        values = [list(map(attrgetter(f"f{number}"), found)) for number in range(len(columns))]
        for number, column in enumerate(columns):
            if not isinstance(column.encoding, Json):
                values[number] = list(map(bytes, values[number]))
        return values


def _type(column: Column) -> Any:
    return column.encoding.type if isinstance(column.encoding, Json) else msgspec.Raw


@lru_cache(maxsize=256)
def _decoder(columns: tuple[tuple[str, Any], ...]) -> msgspec.json.Decoder[Any]:
    """Return a parser of objects with some columns: it skips others, and checks types."""
    fields = [
        (f"f{number}", type_, msgspec.field(name=name))
        for number, (name, type_) in enumerate(columns)
    ]
    # Its objects are gone before they could be part of a cycle.
    return msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False))


def _with_care(line: bytes, columns: Sequence[Column]) -> list[Any]:
    """Parse a line that the quick parser refuses: it may be wrong, or have NaN or half a surrogate pair.

    Raises:
        DataError: If it is wrong.
    """
    try:
        document = json.loads(str(line, "utf-8"))
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"not UTF-8: {error.reason} at byte {error.start}: {line!r:.80}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorruptShardError(f"not JSON: {error}: {line!r:.80}") from error
    if not isinstance(document, dict):
        raise CorruptShardError(f"not a JSON object: {line!r:.80}")
    return [_value(document, column) for column in columns]


def _value(document: Mapping[str, Any], column: Column) -> Any:
    if column.name not in document:
        raise DecodeError(f"column {column.name!r}: missing; there are {sorted(document)!r:.80}")
    value, encoding = document[column.name], column.encoding
    if not isinstance(encoding, Json):
        return json.dumps(value).encode()
    try:
        return encoding.taken(value)
    except (DecodeError, OverflowError) as error:
        raise DecodeError(f"column {column.name!r}: {error}") from error


class JSONLWriter(LinesWriter):
    """Lays out shards of JSON objects."""

    def __init__(self, columns: Sequence[Column], settings: WriteSettings, newline: str) -> None:
        specs = {column.name: column.spec for column in columns}
        super().__init__(
            columns, settings, {"columns": specs, "format": "json", "newline": newline}
        )
        keys = (encode_basestring_ascii(column.name) for column in self.columns)
        pairs = ", ".join(key.replace("%", "%%") + ": %s" for key in keys)
        self._template = f"{{{pairs}}}{newline}"

    def line(self, texts: Sequence[str]) -> str:
        return self._template % tuple(texts)
