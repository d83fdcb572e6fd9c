"""Parser of the entries of a long index.json by regular expressions.

Entries differ in a few numbers, names and digests. An entry that was parsed as JSON becomes a regular
expression in which only these are open; entries that match it are valid JSON of the same schema. The rest
of the file is small, and parsed as JSON. On any irregularity the caller parses the whole file as JSON, so
that all errors come from one parser.
"""

from __future__ import annotations

import codecs
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

from streamplug.errors import StreamplugError
from streamplug.index.basename import PLAIN_BASENAME
from streamplug.index.builder import FileColumns, IndexBuilder
from streamplug.types import Buffer

_SPACE = rb"[ \t\r\n]*"
_SHARDS_START = re.compile(rb'"shards"%b:%b\[%b(?=\{)' % (_SPACE, _SPACE, _SPACE))
_SEPARATOR = rb"%b,%b" % (_SPACE, _SPACE)
_NEXT_ENTRY = re.compile(_SEPARATOR)
_SHARDS_END = re.compile(rb"%b\]" % _SPACE)
_TOKEN = re.compile(rb'[{}\[\]:,]|"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"]+')

_NUMBER = rb"(0|[1-9][0-9]{0,17})"
_NAME = rb'"(%b)"' % PLAIN_BASENAME
_DIGEST = rb'"([0-9A-Za-z]+)"'

_MAX_BATCH_ENTRIES = 1 << 14
_MAX_PATTERNS = 64
_FIRST_WINDOW_BYTES = 1 << 14

Path = tuple[str | None, ...]


def parse_entries_by_pattern(data: Buffer, builder: IndexBuilder) -> Any:
    """Add all entries of an index.json to a builder, and return the document without them.

    None if the document is irregular; the builder must not be used then.
    """
    begin = _SHARDS_START.search(data)
    if begin is None:
        return None
    try:
        end = _read_entries(data, begin.end(), builder)
    except (ValueError, RecursionError, StreamplugError):
        return None
    # The entries were those of the top level if this string is the only shard of the document.
    token = uuid.uuid4().hex
    rest = b"".join((data[: begin.end()], b'"%b"' % token.encode(), data[end:]))
    try:
        document = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    is_top_level = isinstance(document, dict) and document.get("shards") == [token]
    return document if is_top_level else None


def _read_entries(data: Buffer, at: int, builder: IndexBuilder) -> int:
    """Read the entries from `at` on, and return their end; ValueError if they are irregular."""
    patterns: list[EntryPattern] = []
    at = _read_one(data, at, builder, patterns)
    while not _SHARDS_END.match(data, at):
        for number, pattern in enumerate(patterns):
            stop = pattern.read(data, at, builder)
            if stop > at:
                patterns.insert(0, patterns.pop(number))
                break
        else:
            following = _NEXT_ENTRY.match(data, at)
            if following is None or len(patterns) == _MAX_PATTERNS:
                raise ValueError
            stop = _read_one(data, following.end(), builder, patterns)
        at = stop
    return at


def _read_one(data: Buffer, at: int, builder: IndexBuilder, patterns: list[EntryPattern]) -> int:
    entry, stop = _parse_one(data, at)
    number = builder.add(entry)
    patterns.insert(0, EntryPattern(bytes(data[at:stop]), entry, builder, number))
    return stop


def _parse_one(data: Buffer, at: int) -> tuple[Any, int]:
    """Parse the JSON value at an offset, and return it and its end."""
    window = _FIRST_WINDOW_BYTES
    while True:
        text = codecs.getincrementaldecoder("utf-8")().decode(bytes(data[at : at + window]))
        try:
            value, length = json.JSONDecoder().raw_decode(text)
        except ValueError:
            if at + window >= len(data):
                raise
            window *= 16
        else:
            return value, at + len(text[:length].encode())


class EntryPattern:
    """Regular expression of entries that differ from a given one in a few values only."""

    def __init__(
        self, text: bytes, entry: dict[str, Any], builder: IndexBuilder, number: int
    ) -> None:
        """Compile the pattern of `text`, parsed as `entry`; ValueError if a key is repeated or missing."""
        roles = builder.schemas[number].format.roles
        keys = [key for role in roles for key in (f"raw_{role}", f"zip_{role}")]
        self._number = number
        self._keys = [key for key in keys if entry.get(key) is not None]
        self._algorithms = {key: list(entry[key]["hashes"]) for key in self._keys}
        value_patterns: dict[Path, bytes] = {("samples",): _NUMBER}
        for key in self._keys:
            value_patterns |= {(key, "basename"): _NAME, (key, "bytes"): _NUMBER}
            value_patterns |= {(key, "hashes", name): _DIGEST for name in self._algorithms[key]}
        self._group: dict[Path, int] = {}
        parts, done = [_SEPARATOR], 0
        for path, start, stop in _scalars(text):
            if path in self._group:
                raise ValueError
            if path in value_patterns:
                self._group[path] = len(self._group)
                parts += [re.escape(text[done:start]), value_patterns[path]]
                done = stop
        if len(self._group) != len(value_patterns):
            raise ValueError
        # The empty alternative ends the search where an entry does not match.
        self._pattern = re.compile(b"%b%b|" % (b"".join(parts), re.escape(text[done:])))

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
        self._add(rows, builder)
        return at

    def _add(self, rows: list[tuple[bytes, ...]], builder: IndexBuilder) -> None:
        if not rows:
            return
        columns = list(zip(*rows))
        group = self._group
        files = {
            key: FileColumns(
                columns[group[key, "basename"]],
                list(map(int, columns[group[key, "bytes"]])),
                {name: columns[group[key, "hashes", name]] for name in self._algorithms[key]},
            )
            for key in self._keys
        }
        samples = list(map(int, columns[group["samples",]]))
        builder.extend(self._number, samples, files)


def _scalars(text: bytes) -> Iterator[tuple[Path, int, int]]:
    """Yield the path and the span of each scalar in a JSON text; the path of a list item has None."""
    kinds: list[bytes] = []
    keys: list[str | None] = []
    token = b""
    for match in _TOKEN.finditer(text):
        token, previous = match[0], token
        if token in b"{[":
            kinds.append(token)
            keys.append(None)
        elif token in b"}]":
            kinds.pop()
            keys.pop()
        elif token in b":,":
            pass
        elif kinds[-1] == b"{" and previous in (b"{", b","):
            keys[-1] = json.loads(token)
        else:
            yield tuple(keys), *match.span()
