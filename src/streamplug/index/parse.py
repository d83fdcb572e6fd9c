"""Reads an index.json, trusting nothing in it.

The format is that of mosaicml-streaming, version 2: ``{"shards": [entry, …], "version": 2}``, where
an entry repeats the schema and describes the files of one shard. Further keys at the top level are
allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamplug.errors import InvalidIndexError, StreamplugError
from streamplug.index.model import FileTable, Index, Schema
from streamplug.interfaces import Encoding, Format
from streamplug.plugin.registry import make

INDEX_NAME = "index.json"
VERSION = 2

_LIMIT = 1 << 63
_PER_SHARD = re.compile(r"samples|(raw|zip)_\w+")
_DRIVE = re.compile(r"[A-Za-z]:")
# What no file name of a data set has: control characters, halves of surrogate pairs, wildcards.
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\?*]|://")


def parse_index(data: bytes, where: str) -> Index:
    """Return the index that the bytes of an index.json describe.

    Args:
        data: Content of the file.
        where: Its path or URL, for errors.

    Raises:
        InvalidIndexError: If it is damaged, hostile or of an unknown version.
        PluginError: If it names a format or an encoding that is not available.
    """
    try:
        return _parse(data, where)
    except RecursionError:
        raise InvalidIndexError(f"{where} is nested too deeply to be a data set's index") from None


def _parse(data: bytes, where: str) -> Index:
    builder = _Builder(where)
    for number, entry in enumerate(_shards(data, where)):
        try:
            builder.add(entry)
        except StreamplugError as error:
            # The same error, with the place in front.
            raise type(error)(f"{where}: shard {number}: {error}") from error.__cause__
    return builder.index()


def _shards(data: bytes, where: str) -> list[Any]:
    try:
        obj = json.loads(data)
    except ValueError as error:
        cut = "is empty" if not data.strip() else f"is not whole, valid JSON ({error})"
        raise InvalidIndexError(
            f"{where} {cut}; was the writer stopped before it finished? Write or copy the set again"
        ) from None
    if not isinstance(obj, dict) or "shards" not in obj or "version" not in obj:
        raise InvalidIndexError(
            f"{where} is not a data set's index: it needs 'version' and 'shards'"
        )
    if not _is_version(obj["version"]):
        raise InvalidIndexError(
            f"{where} has version {obj['version']!r:.60}; this streamplug reads version {VERSION}"
        )
    if not isinstance(obj["shards"], list):
        raise InvalidIndexError(f"{where}: 'shards' must be a list")
    return obj["shards"]


def _is_version(value: object) -> bool:
    return type(value) is int and value == VERSION


class _Builder:
    """Collects the columns of an index, entry by entry."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._samples: list[int] = []
        self._total = 0
        self._schema_of: list[int] = []
        self._schemas: dict[str, int] = {}
        self._made: list[Schema] = []
        self._last: tuple[dict[str, Any], int] = ({}, -1)
        self._tables: dict[str, tuple[list[str], list[int], list[Mapping[str, str]]]] = {}

    def add(self, entry: object) -> None:
        if not isinstance(entry, dict):
            raise InvalidIndexError("an entry must be an object")
        number = self._schema(entry)
        samples = _whole(entry.get("samples"), "samples")
        self._total += samples
        if self._total >= _LIMIT:
            raise InvalidIndexError("more samples than can be counted")
        schema = self._made[number]
        for role in schema.format.roles:
            raw = _file(entry.get(f"raw_{role}"), f"raw_{role}")
            if raw is None:
                raise InvalidIndexError(f"raw_{role} is missing")
            stored = _file(entry.get(f"zip_{role}"), f"zip_{role}")
            if stored is not None and schema.compression is None:
                raise InvalidIndexError(f"zip_{role} is given, but no compression")
            schema.format.check(samples, role, raw[1])
            self._append(f"raw_{role}", raw)
            self._append(f"zip_{role}", stored or ("", 0, {}))
        self._samples.append(samples)
        self._schema_of.append(number)

    def index(self) -> Index:
        for columns in self._tables.values():
            _pad(columns, len(self._samples))
        tables = {
            key: FileTable(names, np.array(sizes, np.int64), hashes)
            for key, (names, sizes, hashes) in self._tables.items()
        }
        return Index(
            np.array(self._samples, np.int64),
            self._made,
            np.array(self._schema_of, np.int64),
            tables,
        )

    def _append(self, key: str, file: tuple[str, int, Mapping[str, str]]) -> None:
        columns = self._tables.setdefault(key, ([], [], []))
        _pad(columns, len(self._samples))
        names, sizes, hashes = columns
        names.append(file[0])
        sizes.append(file[1])
        hashes.append(file[2])

    def _schema(self, entry: dict[str, Any]) -> int:
        shared = {key: value for key, value in entry.items() if not _PER_SHARD.fullmatch(key)}
        if shared == self._last[0]:
            return self._last[1]
        key = json.dumps(shared, sort_keys=True)
        if key not in self._schemas:
            self._made.append(make_schema(shared))
            self._schemas[key] = len(self._made) - 1
        self._last = (shared, self._schemas[key])
        return self._last[1]


def _pad(columns: tuple[list[str], list[int], list[Mapping[str, str]]], length: int) -> None:
    """Fill in for shards, of another format, that do not have a role."""
    names, sizes, hashes = columns
    missing = length - len(names)
    names += [""] * missing
    sizes += [0] * missing
    hashes += [{}] * missing


def make_schema(entry: Mapping[str, Any]) -> Schema:
    """Return the schema that the shared keys of a shard's entry describe.

    Raises:
        InvalidIndexError: If they are not what the format asks for.
        PluginError: If the format or an encoding is not available.
    """
    if not _is_version(entry.get("version")):
        raise InvalidIndexError(f"shard version {entry.get('version')!r:.60}, expected {VERSION}")
    name, compression = entry.get("format"), entry.get("compression")
    if not isinstance(name, str):
        raise InvalidIndexError(f"format must be a name, got {name!r:.60}")
    if compression is not None and not isinstance(compression, str):
        raise InvalidIndexError(f"compression must be a name or null, got {compression!r:.60}")
    format_: Format = make("format", name)
    return Schema(format_, format_.columns(entry, make_encoding), compression)


def make_encoding(column: str, spec: str) -> Encoding:
    """Return the encoding of a column; its errors name the column.

    Raises:
        StreamplugError: Whatever making it raised, with the column's name in front.
    """
    try:
        encoding: Encoding = make("encoding", spec)
    except StreamplugError as error:
        raise type(error)(f"column {column!r}: {error}") from error.__cause__
    return encoding


def _whole(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < _LIMIT:
        raise InvalidIndexError(f"{what} must be a whole number in [0, 2^63), got {value!r:.60}")
    return value


def _file(value: object, what: str) -> tuple[str, int, Mapping[str, str]] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidIndexError(f"{what} must be an object or null, got {value!r:.60}")
    size = _whole(value.get("bytes"), f"{what}.bytes")
    hashes = value.get("hashes")
    if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
        raise InvalidIndexError(f"{what}.hashes must map names to hex digests, got {hashes!r:.60}")
    return safe_basename(value.get("basename"), what), size, hashes


def safe_basename(name: object, what: str) -> str:
    """Return a file name from an index if it stays inside the directory of the index.

    Raises:
        InvalidIndexError: If it is absolute, a URL, climbs with ``..``, or is no usable name.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    bad = (
        any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or bool(_UNUSABLE.search(str(name)))
        or bool(_DRIVE.match(str(name)))
        or parts[0].startswith((".streamplug", "~"))
    )
    if bad:
        raise InvalidIndexError(
            f"{what}.basename {name!r:.80} is not a relative path inside the data set; "
            "do not use this index unless you know where it comes from"
        )
    return str(name)
