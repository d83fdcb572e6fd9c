"""Parser of index.json files, which are untrusted, and their serialization.

The format is version 2 of mosaicml-streaming: ``{"shards": [entry, …], "version": 2}``, where an entry
repeats the schema and describes the files of one shard. Other keys at the top level are allowed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from streamplug.errors import InvalidIndexError, StreamplugError, TruncatedIndexError, prefix_errors
from streamplug.index.builder import (
    PLAIN_BASENAME,
    VERSION,
    FileColumns,
    IndexBuilder,
    is_version,
    parse_files,
)
from streamplug.index.model import Index
from streamplug.index.value_sizes import VALUE_SIZES
from streamplug.plugin_kit import describe_misnamed
from streamplug.types import Buffer, FileInfo

INDEX_NAME = "index.json"

_MIN_PATTERN_BYTES = 1 << 16
"""Minimum size of an index.json that is parsed by a pattern of its entries."""

_SHARDS_START = re.compile(rb'"shards": \[(?=\{)')
_SEPARATOR = b", "
_NUMBER = "(0|[1-9][0-9]{0,17})"
_NAME = f'"({PLAIN_BASENAME})"'
_DIGEST = '"([0-9A-Za-z]+)"'
_MAX_BATCH_ENTRIES = 1 << 14
_MAX_PATTERNS = 64
_MAX_ENTRY_BYTES = 1 << 20


def digest_index(data: Buffer) -> str:
    """Return the xxh3_128 hex digest that identifies an index.json."""
    return xxhash.xxh3_128_hexdigest(data)


def parse_index(data: Buffer, where: str) -> Index:
    """Parse the content of an index.json, which may be memory-mapped; `where` names it in errors."""
    if len(data) >= _MIN_PATTERN_BYTES:
        builder = IndexBuilder(where)
        document = parse_entries_by_pattern(data, builder)
        if document is not None:
            _check_document(document, where)
            return _build(builder, document, where)
    try:
        return _parse(bytes(data), where)
    except RecursionError:
        raise InvalidIndexError(f"{where} is nested too deeply to be a data set's index") from None


def _parse(data: bytes, where: str) -> Index:
    builder = IndexBuilder(where)
    document = _document(data, where)
    for number, entry in enumerate(_check_document(document, where)):
        with prefix_errors(f"{where}: shard {number}"):
            builder.add(entry)
    return _build(builder, document, where)


def _build(builder: IndexBuilder, document: Mapping[str, Any], where: str) -> Index:
    index = builder.index()
    if VALUE_SIZES in document:
        with prefix_errors(where):
            index.value_sizes = parse_files(document[VALUE_SIZES], VALUE_SIZES)
    return index


def _document(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        if found := describe_misnamed(data, where):
            raise InvalidIndexError(f"{where} is {found}, and no data set's index") from None
        cut = "is empty" if not data.strip() else f"is not whole, valid JSON ({error})"
        raise TruncatedIndexError(
            f"{where} {cut}; was the writer stopped before it finished? Write or copy the set again"
        ) from None


def _check_document(document: Any, where: str) -> list[Any]:
    if not isinstance(document, dict) or "shards" not in document or "version" not in document:
        raise InvalidIndexError(
            f"{where} is not a data set's index: it needs 'version' and 'shards'; if it is that of another "
            "library, pass it by format="
        )
    if not is_version(document["version"]):
        raise InvalidIndexError(
            f"{where} has version {document['version']!r:.60}; this streamplug reads version {VERSION}"
        )
    if not isinstance(document["shards"], list):
        raise InvalidIndexError(f"{where}: 'shards' must be a list")
    return document["shards"]


def parse_entries_by_pattern(data: Buffer, builder: IndexBuilder) -> Any:
    """Add all entries of an index.json to a builder, and return the document without them.

    Entries differ in a few numbers, names and digests. An entry that was parsed as JSON becomes a regular
    expression in which only these are open; entries that match it are valid JSON of the same schema. The
    rest of the file is small, and parsed as JSON. This works for the layout that writers give an index:
    sorted keys, one line, in ASCII.

    None if the document is irregular; the builder must not be used then. The caller parses it as JSON, so
    that all errors come from one parser.
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


def file_entry(file: FileInfo | None) -> dict[str, Any] | None:
    """Return the entry of a file in an index."""
    if file is None:
        return None
    return {"basename": file.basename, "bytes": file.bytes, "hashes": dict(file.hashes)}


def format_index(shards: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]) -> bytes:
    """Return an index.json as mosaicml-streaming writes it; `extra` has further keys at the top level."""
    return json.dumps({**extra, "shards": shards, "version": VERSION}, sort_keys=True).encode()


def extend_index(
    document: Mapping[str, Any], shards: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]
) -> bytes:
    """Return the index.json of a `document` with more shards, and what `extra` says of them."""
    known = {key: value for key, value in document.items() if key not in ("shards", "version")}
    if VALUE_SIZES in extra:
        known[VALUE_SIZES] = [*known.get(VALUE_SIZES, []), *extra[VALUE_SIZES]]
    return format_index([*document["shards"], *shards], known)
