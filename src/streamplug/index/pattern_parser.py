"""Reads the entries of a long index.json, which repeat each other, at the speed of a pattern.

All but a few numbers, names and digests of an entry is text that stood in one before it. An entry that was
read with care becomes a pattern; entries that match it are known to be valid JSON of the same schema, and
only what differs is looked at. What is left when those entries are cut out is small, and is parsed as JSON.

Nothing is decided here: for anything out of the ordinary, the caller reads all of it with care.
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
_BEGIN = re.compile(rb'"shards"%b:%b\[%b(?=\{)' % (_SPACE, _SPACE, _SPACE))
_SEPARATOR = rb"%b,%b" % (_SPACE, _SPACE)
_NEXT = re.compile(_SEPARATOR)
_END = re.compile(rb"%b\]" % _SPACE)
_TOKEN = re.compile(rb'[{}\[\]:,]|"(?:[^"\\]|\\.)*"|[^\s{}\[\]:,"]+')

_NUMBER = rb"(0|[1-9][0-9]{0,17})"
_NAME = rb'"(%b)"' % PLAIN_BASENAME
_DIGEST = rb'"([0-9A-Za-z]+)"'

_ROWS = 1 << 14
_MAX_PATTERNS = 64
_WINDOW = 1 << 14

Path = tuple[str | None, ...]


def parse_entries_by_pattern(data: Buffer, builder: IndexBuilder) -> Any:
    """Give all entries of an index.json to a builder.

    Returns:
        The document with one text in place of its entries, or None if it is out of the ordinary:
        then the builder has seen what may not be there, and must not be used.
    """
    begin = _BEGIN.search(data)
    if begin is None:
        return None
    try:
        end = _read_entries(data, begin.end(), builder)
    except (ValueError, RecursionError, StreamplugError):
        return None
    # Only if this text comes back as the one shard was the place that of the document's shards.
    token = uuid.uuid4().hex
    rest = b"".join((data[: begin.end()], b'"%b"' % token.encode(), data[end:]))
    try:
        document = json.loads(rest)
    except (ValueError, RecursionError):
        return None
    found = isinstance(document, dict) and document.get("shards") == [token]
    return document if found else None


def _read_entries(data: Buffer, at: int, builder: IndexBuilder) -> int:
    """Read the entries from `at` on, and return where the last one ends.

    Raises:
        ValueError: If they are not what they should be, or too many differ.
    """
    patterns: list[EntryPattern] = []
    at = _read_one(data, at, builder, patterns)
    while not _END.match(data, at):
        for number, pattern in enumerate(patterns):
            stop = pattern.read(data, at, builder)
            if stop > at:
                patterns.insert(0, patterns.pop(number))
                break
        else:
            following = _NEXT.match(data, at)
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
    """Parse the JSON value at a place, and return it and where it ends."""
    window = _WINDOW
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
    """What entries look like that differ from one of them in a few values only."""

    def __init__(
        self, text: bytes, entry: dict[str, Any], builder: IndexBuilder, number: int
    ) -> None:
        """Make it of an entry.

        Args:
            text: The entry, as it stands in the file.
            entry: What it says.
            builder: Has taken it.
            number: Of its schema.

        Raises:
            ValueError: If it says one thing twice.
        """
        roles = builder.schemas[number].format.roles
        keys = [key for role in roles for key in (f"raw_{role}", f"zip_{role}")]
        self._number = number
        self._keys = [key for key in keys if entry.get(key) is not None]
        self._algorithms = {key: list(entry[key]["hashes"]) for key in self._keys}
        wanted: dict[Path, bytes] = {("samples",): _NUMBER}
        for key in self._keys:
            wanted |= {(key, "basename"): _NAME, (key, "bytes"): _NUMBER}
            wanted |= {(key, "hashes", name): _DIGEST for name in self._algorithms[key]}
        self._group: dict[Path, int] = {}
        parts, done = [_SEPARATOR], 0
        for path, start, stop in _scalars(text):
            if path in self._group:
                raise ValueError
            if path in wanted:
                self._group[path] = len(self._group)
                parts += [re.escape(text[done:start]), wanted[path]]
                done = stop
        if len(self._group) != len(wanted):
            raise ValueError
        # The empty alternative ends the search where an entry does not match.
        self._pattern = re.compile(b"%b%b|" % (b"".join(parts), re.escape(text[done:])))

    def read(self, data: Buffer, at: int, builder: IndexBuilder) -> int:
        """Give the entries that follow a place, while they match, to a builder; return their end."""
        rows = []
        for match in self._pattern.finditer(data, at):
            if match.end() == at:
                break
            at = match.end()
            rows.append(match.groups())
            if len(rows) == _ROWS:
                self._give(rows, builder)
                rows = []
        self._give(rows, builder)
        return at

    def _give(self, rows: list[tuple[bytes, ...]], builder: IndexBuilder) -> None:
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
    """Yield the path and the place of each string, number and word in a JSON text; lists are None."""
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
