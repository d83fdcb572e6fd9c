"""Shards of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
from streamplug_files import ScannableFormat

from streamplug.errors import ConfigError, CorruptShardError, DecodeError, InvalidIndexError
from streamplug.interfaces import Column, Encoding, GatherBuffer, ShardWriter, WriteSettings
from streamplug.types import Bytes1D, Int64
from streamplug_text.split import Lines, SplitFormat
from streamplug_text.values import JSON, JsonValue
from streamplug_text.writing import LinesWriter

ENDINGS = ("jsonl", "ndjson", "json")
"""File name suffixes of JSON lines."""

_SPACE = frozenset(" \t\r\n")


class JSONL(SplitFormat):
    """``json``, also ``jsonl``: the JSON shards of mosaicml-streaming, byte for byte."""

    suffix = "json"
    encodings: ClassVar[Mapping[str, Encoding]] = JSON

    def __init__(self, newline: str = "\n") -> None:
        """Write lines that end with `newline`; for reading, the index has it.

        Raises:
            ConfigError: If `newline` is not JSON whitespace.
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

    def plain(self) -> ScannableFormat:
        from streamplug_text.plain_jsonl import PlainJSONL

        return PlainJSONL()

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        return ENDINGS


def _is_space(text: object) -> bool:
    return isinstance(text, str) and _SPACE.issuperset(text)


class JSONLines(Lines):
    """Lines that are JSON objects."""

    def __init__(self, *, whole: bool = True) -> None:
        """Parse objects; unless `whole`, missing columns are None."""
        self._whole = whole
        self._last: tuple[Any, _Plan] = None, _Plan((), whole)

    def _plan(self, columns: Sequence[Column]) -> _Plan:
        known, plan = self._last
        if known is not columns:
            plan = _Plan(columns, self._whole)
            self._last = columns, plan
        return plan

    def one(self, line: bytes, columns: Sequence[Column]) -> list[Any]:
        plan = self._plan(columns)
        try:
            fields = list(msgspec.structs.astuple(plan.decode(line)))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _with_care(line, columns, self._whole)
        for place in plan.raw:
            fields[place] = _bytes(fields[place])
        return fields

    def many(
        self, data: Bytes1D, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[list[Any]]:
        plan = self._plan(columns)
        records = list(map(plan.decode, GatherBuffer(data).slices(starts, sizes)))
        values = [list(map(get, records)) for get in plan.getters]
        for place in plan.raw:
            values[place] = list(map(_bytes, values[place]))
        return values


class _Plan:
    """Parser for some columns.

    Attributes:
        decode: Parses a line to a struct with the columns.
        getters: Return the values of the struct.
        raw: Positions of columns of other encodings, whose JSON text is not parsed.
    """

    __slots__ = ("decode", "getters", "raw")

    def __init__(self, columns: Sequence[Column], whole: bool) -> None:
        self.decode = _decode(tuple((column.name, _type(column)) for column in columns), whole)
        self.getters = [attrgetter(f"f{number}") for number in range(len(columns))]
        self.raw = [n for n, column in enumerate(columns) if _type(column) is msgspec.Raw]


def _bytes(raw: msgspec.Raw | None) -> bytes:
    return b"null" if raw is None else bytes(raw)


def _type(column: Column) -> Any:
    return column.encoding.type if isinstance(column.encoding, JsonValue) else msgspec.Raw


@lru_cache(maxsize=256)
def _decode(columns: tuple[tuple[str, Any], ...], whole: bool) -> Callable[[Any], Any]:
    """Return a type-checking parser of some columns, which skips the others."""
    default: Any = msgspec.NODEFAULT if whole else None
    fields = [
        (f"f{number}", type_, msgspec.field(name=name, default=default))
        for number, (name, type_) in enumerate(columns)
    ]
    try:
        # The structs are short-lived and never part of a reference cycle.
        return msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False)).decode
    except ValueError:  # msgspec refuses field names that JSON escapes
        return refuse


def refuse(line: object) -> Any:
    """Refuse any line; the fallback parser reads it.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"left to the parser that takes more time: {line!r:.80}")


def _with_care(line: bytes, columns: Sequence[Column], whole: bool) -> list[Any]:
    """Parse the values of a line that msgspec refuses."""
    document = document_of(line)
    return [_value(document, column, whole) for column in columns]


def document_of(line: bytes) -> dict[str, Any]:
    """Parse a line that msgspec refuses: an invalid one, or one with NaN or an unpaired surrogate.

    Raises:
        DataError: If the line is invalid.
    """
    try:
        document = json.loads(str(line, "utf-8"))
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"not UTF-8: {error.reason} at byte {error.start}: {line!r:.80}"
        ) from error
    except json.JSONDecodeError as error:
        raise CorruptShardError(
            f"not JSON: {error.msg} at column {error.colno}: {line!r:.80}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise CorruptShardError(f"not JSON: {error}: {line!r:.80}") from error
    if not isinstance(document, dict):
        raise CorruptShardError(f"not a JSON object: {line!r:.80}")
    return document


def _value(document: Mapping[str, Any], column: Column, whole: bool) -> Any:
    if column.name not in document and not whole:
        return None if isinstance(column.encoding, JsonValue) else b"null"
    if column.name not in document:
        raise DecodeError(f"column {column.name!r}: missing; there are {sorted(document)!r:.80}")
    value, encoding = document[column.name], column.encoding
    if not isinstance(encoding, JsonValue):
        return json.dumps(value).encode()
    try:
        return encoding.taken(value)
    except (DecodeError, OverflowError) as error:
        raise DecodeError(f"column {column.name!r}: {error}") from error


class JSONLWriter(LinesWriter):
    """Writes shards of JSON objects."""

    def __init__(self, columns: Sequence[Column], settings: WriteSettings, newline: str) -> None:
        specs = {column.name: column.spec for column in columns}
        try:
            "".join(specs).encode()
        except UnicodeEncodeError as error:
            names = list(specs)
            raise ConfigError(f"names of columns are what UTF-8 can hold, got {names}") from error
        super().__init__(
            columns, settings, {"columns": specs, "format": "json", "newline": newline}
        )
        keys = [encode_basestring_ascii(column.name) for column in self.columns]
        before = [f"{mark}{key}: " for mark, key in zip(["{", *[", "] * len(keys)], keys)]
        self._write_rows([*before, "}" + newline])
        self._template = "%s".join([*(text.replace("%", "%%") for text in before), "}" + newline])

    def line(self, texts: Sequence[str]) -> str:
        return self._template % tuple(texts)

    def plain_lines(self, texts: Sequence[Sequence[str]]) -> list[str]:
        return list(map(self._template.__mod__, zip(*texts)))
