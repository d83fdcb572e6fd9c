"""Parser of the entries of a long index.json by regular expressions.

Entries differ in a few numbers, names and digests. An entry that was parsed as JSON becomes a regular
expression in which only these are open; entries that match it are valid JSON of the same schema. The rest
of the file is small, and parsed as JSON. This works for the layout that writers give an index: sorted keys,
one line, in ASCII. On any irregularity the caller parses the whole file as JSON, so that all errors come
from one parser.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

from streamplug.errors import StreamplugError
from streamplug.index.basename import PLAIN_BASENAME
from streamplug.index.builder import FileColumns, IndexBuilder
from streamplug.types import Buffer

_SHARDS_START = re.compile(rb'"shards": \[(?=\{)')
_SEPARATOR = b", "

_NUMBER = "(0|[1-9][0-9]{0,17})"
_NAME = f'"({PLAIN_BASENAME})"'
_DIGEST = '"([0-9A-Za-z]+)"'

_MAX_BATCH_ENTRIES = 1 << 14
_MAX_PATTERNS = 64
_MAX_ENTRY_BYTES = 1 << 20


def parse_entries_by_pattern(data: Buffer, builder: IndexBuilder) -> Any:
    """Add all entries of an index.json to a builder, and return the document without them.

    None if the document is irregular; the builder must not be used then.
    """
    begin = _SHARDS_START.search(data)
    if begin is None:
        return None
    # The entries were those of the top level if this string is the only shard of the document.
    token = uuid.uuid4().hex
    try:
        end = _read_entries(data, begin.end(), builder)
        rest = b"".join((data[: begin.end()], b'"%b"' % token.encode(), data[end:]))
        document = json.loads(rest)
    except (ValueError, RecursionError, StreamplugError):
        return None
    is_top_level = isinstance(document, dict) and document.get("shards") == [token]
    return document if is_top_level else None


def _read_entries(data: Buffer, start: int, builder: IndexBuilder) -> int:
    """Read the entries from `start` on, and return their end; ValueError if they are irregular."""
    patterns: list[EntryPattern] = []
    at = _read_one(data, start, builder, patterns)
    while data[at : at + 1] != b"]":
        for pattern in patterns:
            stop = pattern.read(data, at, builder)
            if stop > at:
                break
        else:
            first = at + len(_SEPARATOR)
            if data[at:first] != _SEPARATOR or len(patterns) == _MAX_PATTERNS:
                raise ValueError
            stop = _read_one(data, first, builder, patterns)
        at = stop
    return at


def _read_one(data: Buffer, at: int, builder: IndexBuilder, patterns: list[EntryPattern]) -> int:
    """Parse the entry at an offset as JSON, add its pattern, and return its end."""
    text = bytes(data[at : at + _MAX_ENTRY_BYTES]).decode("ascii")
    entry, size = json.JSONDecoder().raw_decode(text)
    if text[:size] != json.dumps(entry, sort_keys=True):
        raise ValueError
    number = builder.add(entry)
    patterns.append(EntryPattern(entry, text[:size], builder.schemas[number].format.roles, number))
    return at + size


class EntryPattern:
    """Regular expression of entries that differ from a given one in a few values only."""

    def __init__(self, entry: dict[str, Any], text: str, roles: Sequence[str], number: int) -> None:
        """Compile the pattern of a valid entry of schema `number`; ValueError if it is ambiguous."""
        self._number = number
        keys = [key for role in roles for key in (f"raw_{role}", f"zip_{role}")]
        files = {key: entry[key] for key in keys if entry.get(key) is not None}
        self._algorithms = {key: sorted(file["hashes"] or ()) for key, file in files.items()}
        self._keys = sorted(["samples", *files])  # in the order of the groups
        pattern = re.escape(text)
        for key in self._keys:
            value = re.escape(json.dumps({key: entry[key]}, sort_keys=True)[1:-1])
            if pattern.count(value) != 1:
                raise ValueError
            opened = _NUMBER if key == "samples" else _file_pattern(files[key])
            pattern = pattern.replace(value, f'"{key}": {opened}')
        # The empty alternative ends the search where an entry does not match.
        self._pattern = re.compile(b"%b%b|" % (_SEPARATOR, pattern.encode()))

    def read(self, data: Buffer, at: int, builder: IndexBuilder) -> int:
        """Add the matching entries from `at` on to a builder, and return their end."""
        rows = []
        for match in self._pattern.finditer(data, at):
            if match.end() == at:
                break
            at = match.end()
            rows.append(match.groups())
            if len(rows) == _MAX_BATCH_ENTRIES:
                self._add(rows, builder)
                rows = []
        if rows:
            self._add(rows, builder)
        return at

    def _add(self, rows: list[tuple[bytes, ...]], builder: IndexBuilder) -> None:
        columns = zip(*rows)
        samples: list[int] = []
        files = {}
        for key in self._keys:
            if key == "samples":
                samples = list(map(int, next(columns)))
                continue
            names, sizes = next(columns), list(map(int, next(columns)))
            digests = {name: next(columns) for name in self._algorithms[key]}
            files[key] = FileColumns(names, sizes, digests)
        builder.extend(self._number, samples, files)


def _file_pattern(file: dict[str, Any]) -> str:
    if file.keys() != {"basename", "bytes", "hashes"}:
        raise ValueError
    names = [re.escape(json.dumps(name)) for name in sorted(file["hashes"] or ())]
    hashes = ", ".join(f"{name}: {_DIGEST}" for name in names)
    hashes = "null" if file["hashes"] is None else rf"\{{{hashes}\}}"
    return rf'\{{"basename": {_NAME}, "bytes": {_NUMBER}, "hashes": {hashes}\}}'
