"""Builders of the columns of an index, from single entries or many at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import lt
from types import MappingProxyType
from typing import Any

import numpy as np

from streamplug.errors import InvalidIndexError, UnknownNameError, prefix_errors
from streamplug.index.model import (
    DigestColumns,
    FileTable,
    Index,
    NumberColumnBuilder,
    Schema,
    TextColumn,
    TextColumnBuilder,
    offsets_from_sizes,
)
from streamplug.interfaces import Encoding, Format
from streamplug.plugin import make
from streamplug.types import FileInfo, Int64

_SHARD_NAME = re.compile(r"shard\.[0-9]{5,}\..+")
_DRIVE = re.compile(r"[A-Za-z]:")
# Control characters, lone surrogates, backslashes and wildcards.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\\?*]")

PLAIN_BASENAME = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*"
"""Pattern of common names, all of which `validate_basename` accepts."""

NAME_RULES = (
    "names cannot contain \\, ?, *, :// or control characters, begin with ~, .streamplug or a drive such as "
    "C:, begin or end with a blank, or be other than UTF-8"
)
"""Rules of `validate_basename`, for error messages."""

VERSION = 2
_MAX_NUMBER = 1 << 63
_SHARD_KEYS = re.compile(r"samples|(raw|zip)_\w+")
_MAX_ALGORITHMS = 64


def is_shard_name(name: str) -> bool:
    """Return whether a file name, without directories, is one that writers give the files of shards."""
    return _SHARD_NAME.fullmatch(name) is not None


def normalize_basename(name: object) -> object:
    """Return a path without ``./`` and repeated slashes inside, as mosaicml-streaming reads them."""
    if not isinstance(name, str) or "/" not in name or "://" in name:
        return name
    first, *inner, last = name.split("/")
    head = [] if first == "." else [first]
    return "/".join([*head, *(part for part in inner if part not in ("", ".")), last])


def validate_basename(name: object, what: str) -> str:
    """Return a file name if it is a relative path inside the data set, or raise InvalidIndexError."""
    label = f"{what}.basename {name!r:.80}"
    if not isinstance(name, str):
        raise InvalidIndexError(f"{label} is no path of a file")
    parts = name.split("/")
    leaves = (
        name.startswith(("/", "~", ".streamplug"))
        or "://" in name
        or ".." in name.replace("\\", "/").split("/")
        or bool(_DRIVE.match(name))
    )
    if leaves:
        raise InvalidIndexError(
            f"{label} is not a relative path inside the data set; do not use this index unless you know "
            "where it comes from"
        )
    if any(part in ("", ".") or part != part.strip() for part in parts) or _FORBIDDEN.search(name):
        raise InvalidIndexError(
            f"{label} cannot be the path of a file: {NAME_RULES}; rename it, and write the index again"
        )
    return name


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Names, sizes in bytes, and digests (empty if missing) of one kind of file of several shards."""

    names: Sequence[bytes]
    sizes: Sequence[int]
    digests: Mapping[str, Sequence[bytes]]


class _FileTableBuilder:
    def __init__(self) -> None:
        self._names, self._sizes = TextColumnBuilder(), NumberColumnBuilder()
        self._digests: dict[str, TextColumnBuilder] = {}
        # Ascending names, as most writers give, do not repeat: a check that costs next to nothing.
        self._is_ascending, self._last_name = True, b""

    def put(self, at: int, files: FileColumns) -> None:
        if self._is_ascending:
            previous = chain((self._last_name,), files.names)
            self._is_ascending = all(map(lt, previous, files.names))
            self._last_name = files.names[-1]
        self._names.put(at, files.names)
        self._sizes.put(at, files.sizes)
        for name, digests in files.digests.items():
            self._digests.setdefault(name, TextColumnBuilder()).put(at, digests)
        if len(self._digests) > _MAX_ALGORITHMS:
            raise InvalidIndexError(f"hashes by more than {_MAX_ALGORITHMS} algorithms")

    def build(self, count: int) -> FileTable:
        """Return the files of `count` shards.

        Raises:
            InvalidIndexError: If one file has several sizes or digests.
        """
        digests = {name: texts.build(count) for name, texts in self._digests.items()}
        names, sizes = self._names.build(count), self._sizes.build(count)
        if not self._is_ascending:
            _check_repeated_names(names, sizes, digests)
        return FileTable(names, sizes, DigestColumns(digests))


class IndexBuilder:
    """Builder of an index from the entries of shards; `where` names the index in errors."""

    def __init__(self, where: str) -> None:
        self.schemas: list[Schema] = []
        self._where = where
        self._count = self._total = 0
        self._samples, self._schema_of = NumberColumnBuilder(), NumberColumnBuilder()
        self._tables: dict[str, _FileTableBuilder] = {}
        self._known: dict[str, int] = {}

    def add(self, entry: object) -> int:
        """Add a shard's entry of an index.json, which is untrusted; return the number of its schema."""
        if not isinstance(entry, dict):
            raise InvalidIndexError("an entry must be an object")
        number = self._schema(entry)
        samples = _check_number(entry.get("samples"), "samples")
        schema = self.schemas[number]
        files = {}
        for role in schema.format.roles:
            raw = _check_file(entry.get(f"raw_{role}"), f"raw_{role}")
            if raw is None:
                raise InvalidIndexError(f"raw_{role} is missing")
            stored = _check_file(entry.get(f"zip_{role}"), f"zip_{role}")
            if stored is not None and schema.compression is None:
                raise InvalidIndexError(f"zip_{role} is given, but no compression")
            files[f"raw_{role}"] = _columns_of(raw)
            if stored is not None:
                files[f"zip_{role}"] = _columns_of(stored)
        self.extend(number, (samples,), files)
        return number

    def extend(self, number: int, samples: Sequence[int], files: Mapping[str, FileColumns]) -> None:
        """Add many shards of one schema, with files by ``raw_<role>`` and ``zip_<role>``.

        Names must be valid for `validate_basename`, samples and sizes in ``[0, 2^63)``.
        """
        self._total += sum(samples)
        if self._total >= _MAX_NUMBER:
            raise InvalidIndexError("more samples than can be counted")
        format_ = self.schemas[number].format
        for role in format_.roles:
            for count, size in zip(samples, files[f"raw_{role}"].sizes):
                format_.check(count, role, size)
        self._samples.put(self._count, samples)
        self._schema_of.put(self._count, (number,) * len(samples))
        for key, some in files.items():
            self._tables.setdefault(key, _FileTableBuilder()).put(self._count, some)
        self._count += len(samples)

    def index(self) -> Index:
        """Return the index of all shards so far.

        Raises:
            InvalidIndexError: If entries of one file contradict each other.
        """
        count = self._count
        try:
            tables = {key: table.build(count) for key, table in self._tables.items()}
        except InvalidIndexError as error:
            raise InvalidIndexError(f"{self._where}: {error}") from None
        return Index(
            offsets_from_sizes(self._samples.build(count)),
            self.schemas,
            self._schema_of.build(count),
            tables,
            where=self._where,
        )

    def _schema(self, entry: dict[str, Any]) -> int:
        shared = {key: value for key, value in entry.items() if not _SHARD_KEYS.fullmatch(key)}
        key = json.dumps(shared, sort_keys=True)
        if key not in self._known:
            self.schemas.append(make_schema(shared))
            self._known[key] = len(self.schemas) - 1
        return self._known[key]


def make_schema(entry: Mapping[str, Any]) -> Schema:
    """Return the schema described by the shared keys of a shard's entry."""
    if not is_version(entry.get("version")):
        raise InvalidIndexError(f"shard version {entry.get('version')!r:.60}, expected {VERSION}")
    name, compression = entry.get("format"), entry.get("compression")
    if not isinstance(name, str):
        raise InvalidIndexError(f"format must be a name, got {name!r:.60}")
    if compression is not None and not isinstance(compression, str):
        raise InvalidIndexError(f"compression must be a name or null, got {compression!r:.60}")
    hashes = entry.get("hashes")
    hashes = [] if hashes is None else hashes
    if not isinstance(hashes, list) or not all(isinstance(name, str) for name in hashes):
        raise InvalidIndexError(f"hashes must be a list of names, got {hashes!r:.60}")
    format_: Format = make("format", name)
    encode = partial(make_encoding, own=format_.encodings)
    return Schema(format_, format_.columns(entry, encode), compression, entry)


def is_version(value: object) -> bool:
    """Return whether a version of an index or a shard is supported."""
    return type(value) is int and value == VERSION


def make_encoding(
    column: str, spec: str, own: Mapping[str, Encoding] = MappingProxyType({})
) -> Encoding:
    """Return the encoding of a column; if a format has its `own` encodings, only those are valid."""
    if own and spec in own:
        return own[spec]
    if own:
        raise UnknownNameError(
            f"column {column!r}: this format has no encoding {spec!r}; it has {', '.join(own)}"
        )
    with prefix_errors(f"column {column!r}"):
        encoding: Encoding = make("encoding", spec)
    return encoding


def _check_repeated_names(
    names: TextColumn, sizes: Int64, digests: Mapping[str, TextColumn]
) -> None:
    """Refuse shards that name one file but differ in its size or a digest: they are different files.

    A file may be listed several times.
    """
    first_of: dict[bytes, int] = {}
    repeated = [
        (first, shard)
        for shard, name in enumerate(names.texts())
        if name and (first := first_of.setdefault(name, shard)) != shard
    ]
    if not repeated:
        return
    first, later = np.array(repeated).T
    differs = sizes[first] != sizes[later]
    for column in digests.values():
        texts = column.texts()
        differs |= [bool(texts[a] and texts[b]) and texts[a] != texts[b] for a, b in repeated]
    if differs.any():
        one, other = repeated[int(differs.argmax())]
        raise InvalidIndexError(
            f"shards {one} and {other} are in one file, {names[one]!r:.80}, but with different sizes or "
            "checksums: one has overwritten the other; write the set again with a name for each shard"
        )


def _check_number(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value < _MAX_NUMBER:
        raise InvalidIndexError(f"{what} must be a whole number in [0, 2^63), got {value!r:.60}")
    return value


def _check_file(value: object, what: str) -> FileInfo | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidIndexError(f"{what} must be an object or null, got {value!r:.60}")
    size = _check_number(value.get("bytes"), f"{what}.bytes")
    hashes = value.get("hashes", ())
    hashes = {} if hashes is None else hashes  # mosaicml-streaming reads null, and no missing key
    if not isinstance(hashes, dict) or not all(isinstance(h, str) and h for h in hashes.values()):
        raise InvalidIndexError(f"{what}.hashes must map names to hex digests, got {hashes!r:.60}")
    return FileInfo(
        validate_basename(normalize_basename(value.get("basename")), what), size, hashes
    )


def _columns_of(file: FileInfo) -> FileColumns:
    digests = {name: (digest.encode(errors="replace"),) for name, digest in file.hashes.items()}
    return FileColumns((file.basename.encode(),), (file.bytes,), digests)


def parse_files(value: object, what: str) -> list[FileInfo]:
    """Return the files of a list in an index.json, which is untrusted.

    Raises:
        InvalidIndexError: If it is none.
    """
    if not isinstance(value, list):
        raise InvalidIndexError(f"{what} must be a list, got {value!r:.60}")
    files = []
    for number, entry in enumerate(value):
        file = _check_file(entry, f"{what}[{number}]")
        if file is None:
            raise InvalidIndexError(f"{what}[{number}] must be an object, got null")
        files.append(file)
    return files
