"""Format of plain JSON lines files, in which missing keys are None."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
from streamplug_files import ScanResult, ScanSource

from streamplug.errors import CorruptShardError, DataError, InvalidIndexError
from streamplug.interfaces import Column, Encoding
from streamplug.types import Int64
from streamplug_text.jsonl import ENDINGS, JSONLines, document_of, refuse
from streamplug_text.plain import FilePart, PlainFormat, packed, parts
from streamplug_text.split import Lines
from streamplug_text.values import JsonValue

NAME = "plain-jsonl"
_MOST_COLUMNS = 1000


class JsonAny(JsonValue):
    """Any JSON value."""

    name, expected, plain = "json", "what JSON can express", object
    type: ClassVar[Any] = Any

    def taken(self, value: object) -> Any:
        return value

    def text(self, value: Any) -> str:
        return json.dumps(value)


_ANY = JsonAny()


class PlainJSONL(PlainFormat):
    """``plain-jsonl``: plain files of JSON objects, not written as shards."""

    suffix = "jsonl"

    @classmethod
    def file_suffixes(cls) -> tuple[str, ...]:
        return ENDINGS

    def columns(
        self, entry: Mapping[str, Any], make_encoding: Callable[[str, str], Encoding]
    ) -> tuple[Column, ...]:
        names = entry.get("columns")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidIndexError(f"columns must be a list of names, got {names!r:.60}")
        if not names or len(set(names)) != len(names):
            raise InvalidIndexError(f"columns must be distinct and at least one, got {names!r:.80}")
        return tuple(Column(name, "json", _ANY) for name in names)

    def lines(self, columns: Sequence[Column]) -> Lines:
        return JSONLines(whole=False)

    def scan(self, file: ScanSource) -> ScanResult:
        keys, starts = _Keys(), [np.empty(0, np.int64)]
        starts += [part.at + keys.look(part) for part in parts(file, _ends_of)]
        samples = sum(map(len, starts))
        if 2 * keys.bad > samples:
            raise CorruptShardError(
                f"not JSON lines: {keys.bad} of {samples} lines are no JSON objects; {keys.first_fault}"
            )
        entry = {"columns": sorted(keys.names), "format": NAME, "version": 2}
        return ScanResult(samples, entry, {"meta": packed(starts, file.size)})

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        # Missing keys are None, so that all files can have all columns.
        columns = sorted({n for entry in entries for n in entry["columns"]})
        if not columns:
            raise InvalidIndexError("no line has a key, so the names of columns are not known")
        return {**entries[0], "columns": columns}


def _ends_of(data: bytes) -> Int64:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


class _Keys:
    """Collects the keys of all lines.

    Attributes:
        names: The keys so far.
        bad: Number of lines that are no JSON objects. They are samples, whose reading fails.
        first_fault: Text about the first of these.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.bad, self.first_fault = 0, ""
        self._check = _checker(())

    def look(self, part: FilePart) -> Int64:
        """Collect the keys of lines, and return the offsets of those that are not blank.

        Raises:
            CorruptShardError: If there are too many keys.
        """
        lines = part.data.split(b"\n")[:-1]
        try:
            deque(map(self._check, lines), maxlen=0)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return part.starts[self._look_closely(lines, part.line)]
        return part.starts

    def _look_closely(self, lines: Sequence[bytes], first: int) -> list[int]:
        """Check lines one by one, and return those that are not blank; `first` is the first line number."""
        full = []
        for number, line in enumerate(lines):
            try:
                self._check(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                if not line.strip(b" \t\r"):  # what JSON takes for blank
                    continue
                self._learn(line, first + number)
            full.append(number)
        return full

    def _learn(self, line: bytes, number: int) -> None:
        """Collect the keys of a line that the fast parser refused."""
        try:
            document = document_of(line)
        except DataError as error:
            self.first_fault = self.first_fault or f"line {number}: {error}"
            self.bad += 1
            return
        before = len(self.names)
        self.names.update(dict.fromkeys(document))
        if len(self.names) > _MOST_COLUMNS:
            raise CorruptShardError(
                f"more than {_MOST_COLUMNS} keys by now, so they are hardly names of columns; put what "
                "they hold into one value"
            )
        if len(self.names) > before:
            self._check = _checker(tuple(self.names))


def _checker(names: Sequence[str]) -> Callable[[bytes], Any]:
    """Return a parser that raises for lines with other keys."""
    fields = [
        (f"f{number}", msgspec.Raw, msgspec.field(name=name, default=None))
        for number, name in enumerate(names)
    ]
    try:
        line = msgspec.defstruct("Line", fields, forbid_unknown_fields=True, gc=False)
        return msgspec.json.Decoder(line).decode
    except ValueError:  # msgspec refuses field names that JSON escapes
        return refuse
