"""Shards of separated values without quoting: CSV, TSV, or any other separator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from streamplug_files import ScannableFormat

from streamplug.errors import (
    ConfigError,
    CorruptShardError,
    DecodeError,
    EncodeError,
    InvalidIndexError,
)
from streamplug.interfaces import Column, Encoding, GatherBuffer, ShardWriter, WriteSettings
from streamplug.plugin_kit import names_and_specs
from streamplug.types import Bytes1D, Int64
from streamplug_text.split import Lines, SplitFormat
from streamplug_text.values import FIELDS, Field
from streamplug_text.writing import LinesWriter

_OF_NUMBERS = frozenset("+-.0123456789aefin")


@dataclass(frozen=True, slots=True)
class Marks:
    """Separator and line terminator.

    Attributes:
        separator: Text between values.
        newline: Text after the last value.
    """

    separator: str
    newline: str

    def fault(self) -> str:
        """Return why lines could not be parsed, or an empty string."""
        options: Mapping[str, Any] = {"separator": self.separator, "newline": self.newline}
        for name, text in options.items():
            if not isinstance(text, str) or not text:
                return f"{name}={text!r}: expected some text"
            if any("\ud800" <= character <= "\udfff" for character in text):
                return f"{name}={text!r}: expected what UTF-8 can hold"
        if self.separator in self.newline or self.newline in self.separator:
            return (
                f"separator={self.separator!r}, newline={self.newline!r}: one has the other in it"
            )
        return ""

    def line(self, texts: Sequence[str]) -> str:
        """Return the line of texts."""
        return self.separator.join(texts) + self.newline

    @property
    def short(self) -> bool:
        """Whether separator and newline are a single byte each."""
        return len(self.separator.encode()) == len(self.newline.encode()) == 1


@dataclass(frozen=True, slots=True)
class MarkedColumn(Column):
    """A column with the separator and newline of its data set."""

    marks: Marks


class XSV(SplitFormat):
    """``xsv``, ``xsv:SEPARATOR``: the XSV shards of mosaicml-streaming, byte for byte."""

    suffix = "xsv"
    encodings: ClassVar[Mapping[str, Encoding]] = FIELDS
    separator: ClassVar[str | None] = None

    def __init__(self, separator: str | None = None, newline: str = "\n") -> None:
        """Set the separator and newline for writing; for reading, the index has them.

        Args:
            separator: Text between values; required for writing.
            newline: Text after the last value.

        Raises:
            ConfigError: If such lines could not be parsed.
        """
        self._separator, self._newline = separator, newline
        self._types: Mapping[str, str] = {}
        fault = "" if separator is None else Marks(separator, newline).fault()
        if fault:
            raise ConfigError(fault)

    @classmethod
    def from_spec(cls, argument: str | None) -> XSV:
        return cls(argument)

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        names, specs = names_and_specs(entry)
        marks = Marks(self.separator or entry.get("separator", ""), entry.get("newline", ""))
        if marks.fault():
            raise InvalidIndexError(marks.fault())
        return tuple(
            MarkedColumn(name, spec, make_encoding(name, spec), marks)
            for name, spec in zip(names, specs)
        )

    def lines(self, columns: Sequence[Column]) -> Lines:
        return XSVLines(columns)

    def plain(self) -> ScannableFormat:
        from streamplug_text.plain_csv import PlainCSV

        if self._separator is None:
            raise ConfigError(
                "files without an index.json need a separator: format='xsv:SEPARATOR'"
            )
        return PlainCSV(self._separator, self._types)

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        return "xsv", "psv", "csv", "tsv", "txt"

    def writer(self, columns: Sequence[Column], settings: WriteSettings) -> ShardWriter:
        if self._types:
            raise ConfigError(
                f"format {self.suffix}: types after the colon are for reading; give columns= instead"
            )
        if self._separator is None:
            raise ConfigError(
                "xsv has no separator of its own: write with XSVWriter(separator=…) or "
                "format='xsv:SEPARATOR'"
            )
        keys = {"format": self.suffix, "newline": self._newline}
        if self.separator is None:
            keys["separator"] = self._separator
        return XSVShardWriter(columns, settings, keys, Marks(self._separator, self._newline))


class CSV(XSV):
    """``csv``: the CSV shards of mosaicml-streaming, byte for byte.

    The column types of files without an index.json may follow a colon: ``csv:id=int,score=float``.
    """

    suffix = "csv"
    separator = ","

    def __init__(self, newline: str = "\n") -> None:
        """Write lines that end with `newline`."""
        super().__init__(self.separator, newline)

    @classmethod
    def from_spec(cls, argument: str | None) -> CSV:
        from streamplug_text.plain_csv import types_of

        made = cls()
        if argument is not None:
            made._types = types_of(cls.suffix, argument)
        return made

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        return (cls.suffix,)


class TSV(CSV):
    """``tsv``: the TSV shards of mosaicml-streaming, byte for byte."""

    suffix = "tsv"
    separator = "\t"


class XSVLines(Lines):
    """Parser of lines of separated values."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """Set all columns, in stored order."""
        first = columns[0]
        if not isinstance(first, MarkedColumn):
            raise TypeError(f"expected columns that XSV.columns has returned, got {first}")
        self._marks = first.marks
        self._place = {column.name: place for place, column in enumerate(columns)}
        self.header = self._marks.line(list(self._place)).encode(errors="replace")
        self._last: tuple[Any, list[tuple[int, Callable[[str], Any]]]] = None, []

    def one(self, line: bytes, columns: Sequence[Column]) -> list[Any]:
        marks, text = self._marks, self.decoded(line)
        if not text.endswith(marks.newline):
            raise CorruptShardError(f"it does not end with {marks.newline!r}: {text!r:.80}")
        text = text[: -len(marks.newline)]
        if marks.newline in text:
            raise CorruptShardError(f"it has {marks.newline!r} in it: {text!r:.80}")
        return self.parsed(text.split(marks.separator), columns)

    def decoded(self, line: bytes) -> str:
        """Decode a line from UTF-8.

        Raises:
            DecodeError: If it is not UTF-8; names the column.
        """
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            name = self._column_at(line[: error.start])
            raise DecodeError(
                f"column {name!r}: not UTF-8: {error.reason} at byte {error.start} of {line!r:.80}"
            ) from error

    def parsed(self, fields: Sequence[str], columns: Sequence[Column]) -> list[Any]:
        """Parse the fields of a sample.

        Raises:
            DataError: If they do not match the columns.
        """
        if len(fields) != len(self._place):
            raise CorruptShardError(
                f"it has {len(fields)} fields, the index names {len(self._place)} columns: {fields!r:.80}"
            )
        try:
            return [parse(fields[place]) for place, parse in self._plan(columns)]
        except ValueError:  # one by one, to name the invalid value
            return [_value(fields[self._place[column.name]], column) for column in columns]

    def _plan(self, columns: Sequence[Column]) -> list[tuple[int, Callable[[str], Any]]]:
        """Return position and parser of each column."""
        known, plan = self._last
        if known is not columns:
            plan = [(self._place[column.name], _parser(column)) for column in columns]
            self._last = columns, plan
        return plan

    def _column_at(self, before: bytes) -> str:
        """Return the column after some bytes of a line."""
        place = before.count(self._marks.separator.encode())
        return list(self._place)[min(place, len(self._place) - 1)]

    def many(
        self, data: Bytes1D, starts: Int64, sizes: Int64, columns: Sequence[Column]
    ) -> list[list[Any]]:
        lines, width = b"".join(GatherBuffer(data).slices(starts, sizes)), len(self._place)
        fields = self._fields(lines, np.cumsum(sizes))
        return [
            fields[place::width] if parse is _text else list(map(parse, fields[place::width]))
            for place, parse in self._plan(columns)
        ]

    def _fields(self, lines: bytes, ends: Int64) -> list[str]:
        """Return the fields of concatenated lines; `ValueError` if they must be parsed one by one."""
        separator, newline = self._marks.separator, self._marks.newline
        if not self._marks.short:
            raise ValueError
        data = np.frombuffer(lines, np.uint8)
        is_end = data == ord(newline)
        ends_found = np.flatnonzero(is_end)
        marks = np.flatnonzero(is_end | (data == ord(separator)))
        # Each line has one newline, after one separator fewer than columns.
        if not np.array_equal(ends_found + 1, ends) or not np.array_equal(
            marks[len(self._place) - 1 :: len(self._place)], ends_found
        ):
            raise ValueError
        return lines.decode().replace(newline, separator).split(separator)[:-1]


def _text(text: str) -> str:
    return text


def _parser(column: Column) -> Callable[[str], Any]:
    """Return the parser of a column's text; other encodings get its bytes."""
    if not isinstance(column.encoding, Field):
        return str.encode
    return _text if column.encoding.plain is str else column.encoding.parse


def _value(text: str, column: Column) -> Any:
    try:
        return _parser(column)(text)
    except ValueError as error:
        raise DecodeError(
            f"column {column.name!r}: not {column.spec} as text: {text!r:.80}"
        ) from error


class XSVShardWriter(LinesWriter):
    """Writes shards of separated values."""

    def __init__(
        self,
        columns: Sequence[Column],
        settings: WriteSettings,
        keys: Mapping[str, Any],
        marks: Marks,
    ) -> None:
        columns = sorted(columns, key=lambda column: column.name)
        names = [column.name for column in columns]
        for name in names:
            if marks.separator in name or marks.newline in name:
                raise ConfigError(
                    f"column {name!r}: nothing is quoted, so a name cannot have the separator "
                    f"{marks.separator!r} or the newline {marks.newline!r} in it"
                )
        keys = {**keys, "column_names": names, "column_encodings": [c.spec for c in columns]}
        try:
            header = marks.line(names).encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"names of columns are what UTF-8 can hold, got {names}") from error
        super().__init__(columns, settings, keys, header)
        self._marks = marks
        self._strings = [place for place, kind in enumerate(self._kinds) if kind.plain is str]
        # Single-character marks that no number contains can occur only within string values.
        both = marks.separator + marks.newline
        self._simple = len(both) == 2 and not set(both) & _OF_NUMBERS
        if self._simple:
            between = ["", *[marks.separator] * (len(names) - 1), marks.newline]
            self._write_rows(between, [marks.separator, marks.newline])

    def line(self, texts: Sequence[str]) -> str:
        marks = self._marks
        line = marks.separator.join(texts)
        if marks.newline in line or line.split(marks.separator) != list(texts):
            raise self._refused(texts)
        return line + marks.newline

    def plain_lines(self, texts: Sequence[Sequence[str]]) -> list[str]:
        if not self._simple:
            raise ValueError
        separator, newline = self._marks.separator, self._marks.newline
        for place in self._strings:
            together = "".join(texts[place])
            if separator in together or newline in together:
                raise ValueError
        return [separator.join(row) + newline for row in zip(*texts)]

    def _refused(self, texts: Sequence[str]) -> EncodeError:
        """Return the error for values that could not be parsed again."""
        separator, newline = self._marks.separator, self._marks.newline
        for column, text in zip(self.columns, texts):
            for name, mark in (("separator", separator), ("newline", newline)):
                # The end of a value may form a multi-character mark together with what follows.
                if mark in text or separator in (text + separator)[:-1]:
                    return EncodeError(
                        f"column {column.name!r}: nothing is quoted, so a value cannot have the {name} "
                        f"{mark!r} in it, got {text!r:.80}"
                    )
        return EncodeError(f"the values {list(texts)!r:.80} could not be told apart again")
