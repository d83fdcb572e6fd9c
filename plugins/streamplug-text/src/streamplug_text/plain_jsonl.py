"""Files of JSON lines, as they are: what one line lacks of the columns of all is None."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from streamplug.errors import CorruptShardError, DataError, InvalidIndexError
from streamplug.interfaces import Column, Encoding, ScanResult, ScanSource
from streamplug.types import Int64
from streamplug_text.jsonl import ENDINGS, JSONLines, document_of, refuse
from streamplug_text.plain import Part, PlainFormat, packed, parts
from streamplug_text.split import Lines
from streamplug_text.values import Json

NAME = "plain-jsonl"
_MOST_COLUMNS = 1000


class JsonAny(Json):
    """Whatever JSON can express."""

    name, expected, plain = "json", "what JSON can express", object
    type: ClassVar[Any] = Any

    def taken(self, value: object) -> Any:
        return value

    def text(self, value: Any) -> str:
        return json.dumps(value)


_ANY = JsonAny()


class PlainJSONL(PlainFormat):
    """``plain-jsonl``: lines that are JSON objects, in files that nobody has written as shards."""

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
        if file.size and not keys.names:
            raise CorruptShardError("there is no line that is an object with keys")
        entry = {"columns": sorted(keys.names), "format": NAME, "version": 2}
        return ScanResult(sum(map(len, starts)), entry, {"meta": packed(starts, file.size)})

    def merge_entries(self, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        # What a line does not have is None, so all files can have the columns of all.
        return {**entries[0], "columns": sorted({n for each in entries for n in each["columns"]})}


def _ends_of(data: bytes) -> Int64:
    return np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1


class _Keys:
    """The keys of all lines.

    Attributes:
        names: Those found so far.
    """

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self._check = _checker(())

    def look(self, part: Part) -> Int64:
        """Look at some lines, and return where those begin that are not blank.

        Raises:
            CorruptShardError: If one is not an object of JSON.
        """
        lines = part.data.split(b"\n")[:-1]
        try:
            deque(map(self._check, lines), maxlen=0)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return part.starts[self._look_closely(lines, part.line)]
        return part.starts

    def _look_closely(self, lines: Sequence[bytes], first: int) -> list[int]:
        """Look at lines one by one, and return which are not blank; `first` is the number of the first."""
        full = []
        for number, line in enumerate(lines):
            try:
                self._check(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                if not line or line.isspace():
                    continue
                try:
                    self._learn(line)
                except DataError as error:
                    raise CorruptShardError(f"line {first + number}: {error}") from error
            full.append(number)
        return full

    def _learn(self, line: bytes) -> None:
        """Take a line that has other keys, or that is wrong, or that the quick parser does not take."""
        before = len(self.names)
        self.names.update(dict.fromkeys(document_of(line)))
        if len(self.names) > _MOST_COLUMNS:
            raise CorruptShardError(
                f"more than {_MOST_COLUMNS} keys by now, so they are hardly names of columns; put what "
                "they hold into one value"
            )
        if len(self.names) > before:
            self._check = _checker(tuple(self.names))


def _checker(names: Sequence[str]) -> Callable[[bytes], Any]:
    """Return what takes lines that are objects with no other keys, and raises at others."""
    fields = [
        (f"f{number}", msgspec.Raw, msgspec.field(name=name, default=None))
        for number, name in enumerate(names)
    ]
    try:
        line = msgspec.defstruct("Line", fields, forbid_unknown_fields=True, gc=False)
        return msgspec.json.Decoder(line).decode
    except ValueError:  # it has no fields whose names are escaped in JSON
        return refuse
