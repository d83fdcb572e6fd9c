"""Format of plain CSV and TSV files with a header line and quoting."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from streamplug_files import ScanResult, ScanSource

from streamplug.errors import ConfigError, CorruptShardError, DecodeError, InvalidIndexError
from streamplug.interfaces import Column, Encoding
from streamplug.plugin_kit import names_and_specs
from streamplug.types import Int64
from streamplug_text.plain import PlainFormat, blank, packed, parts
from streamplug_text.quotes import record_ends, values_of
from streamplug_text.split import Lines
from streamplug_text.values import FIELDS
from streamplug_text.xsv import MarkedColumn, Marks, XSVLines

NAME = "plain-csv"


class PlainCSV(PlainFormat):
    """``plain-csv``: plain CSV and TSV files, not written as shards."""

    suffix = "csv"
    encodings = FIELDS

    def __init__(self, separator: str = ",", types: Mapping[str, str] | None = None) -> None:
        """Set the separator, and the types of columns that are not str.

        Raises:
            ConfigError: If the separator is invalid.
        """
        if len(separator.encode(errors="replace")) != 1 or separator in '"\r\n':
            raise ConfigError(
                f"separator {separator!r}: files without an index.json are read with one of a single byte, "
                "which is no quote and ends no line"
            )
        self._separator, self._types = separator, dict(types or {})

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        names, specs = names_and_specs(entry)
        separator = entry.get("separator")
        if not isinstance(separator, str):
            raise InvalidIndexError(f"separator must be a str, got {separator!r:.60}")
        try:
            PlainCSV(separator)
        except ConfigError as error:
            raise InvalidIndexError(str(error)) from error
        marks = Marks(separator, "\n")
        return tuple(
            MarkedColumn(name, spec, make_encoding(name, spec), marks)
            for name, spec in zip(names, specs)
        )

    def lines(self, columns: Sequence[Column]) -> Lines:
        return QuotedLines(columns)

    def scan(self, file: ScanSource) -> ScanResult:
        names: list[str] | None = None
        starts = [np.empty(0, np.int64)]
        for part in parts(file, partial(record_ends, separator=self._separator.encode())):
            row_starts = part.starts[~blank(part)]
            if names is None and len(row_starts):
                first = part.data[
                    row_starts[0] : part.ends[np.searchsorted(part.ends, row_starts[0], "right")]
                ]
                names, row_starts = self._names(first), row_starts[1:]
            starts.append(part.at + row_starts)
        if names is None:
            raise CorruptShardError("there is no line that names the columns")
        entry = {
            "column_encodings": [self._types.get(name, "str") for name in names],
            "column_names": names,
            "format": NAME,
            "separator": self._separator,
            "version": 2,
        }
        return ScanResult(sum(map(len, starts)), entry, {"meta": packed(starts, file.size)})

    def _names(self, line: bytes) -> list[str]:
        """Return the column names in the first line."""
        try:
            names = values_of(line.decode().rstrip("\r\n"), self._separator)
        except UnicodeDecodeError as error:
            raise DecodeError(f"line 1: not UTF-8: {error.reason} at byte {error.start}") from error
        except CorruptShardError as error:
            raise CorruptShardError(f"line 1: {error}") from error
        if len(set(names)) != len(names):
            raise CorruptShardError(f"line 1 names a column twice: {names!r:.200}")
        if unknown := sorted(self._types.keys() - set(names)):
            raise ConfigError(
                f"types are given for {unknown}, but line 1 has the columns {names!r:.200}"
            )
        return names

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        first = entries[0]
        for entry in entries:
            if entry != first:
                raise InvalidIndexError(
                    "all files must have the same columns in the same order: one has "
                    f"{first['column_names']}, another {entry['column_names']}; give each kind its own "
                    "stream in streams="
                )
        return first


def types_of(name: str, argument: str) -> dict[str, str]:
    """Parse the column types in the argument of a format, such as ``id=int,score=float``.

    Raises:
        ConfigError: If the argument is invalid.
    """
    types: dict[str, str] = {}
    for part in argument.split(","):
        column, equals, type_ = part.rpartition("=")
        if not equals or type_ not in FIELDS or column in types:
            raise ConfigError(
                f"format {name}:{argument}: expected COLUMN=TYPE, with commas between them, TYPE being one "
                f"of {', '.join(FIELDS)}"
            )
        types[column] = type_
    return types


class QuotedLines(XSVLines):
    """Parser of lines whose values may be quoted, with separators and newlines in the quotes."""

    def one(self, line: bytes, columns: Sequence[Column]) -> list[Any]:
        return self.parsed(
            values_of(self.decoded(line).rstrip("\r\n"), self._marks.separator), columns
        )

    def _fields(self, lines: bytes, ends: Int64) -> list[str]:
        data = np.frombuffer(lines, np.uint8)
        if (data[ends - 1] != ord("\n")).any():
            raise ValueError
        if b'"' in lines:
            return self._quoted(lines.decode(), len(ends))
        if b"\r" in lines:
            returns = np.flatnonzero(data == ord("\r"))
            if not np.array_equal(returns + 2, ends):
                raise ValueError
            lines, ends = lines.replace(b"\r", b""), ends - np.arange(1, len(ends) + 1)
        return super()._fields(lines, ends)

    def _quoted(self, text: str, count: int) -> list[str]:
        """Return the fields of `count` lines; raise any exception if the fallback must parse them."""
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=self._marks.separator))
        if len(rows) != count or set(map(len, rows)) != {len(self._place)}:
            raise ValueError
        return list(chain.from_iterable(rows))
