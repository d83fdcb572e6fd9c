"""Opens the companion of an index.json: maps its columns, and trusts nothing in it.

Opening parses only the description and looks through the one column that decides the order of an epoch. What
the others say of a shard is checked when that shard is asked for, in the same way as in an index.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from streamplug.errors import InvalidIndexError, StreamplugError
from streamplug.index.builder import make_schema
from streamplug.index.columns import (
    MAX_DIGITS,
    Absent,
    Digests,
    HexTexts,
    Numbered,
    Same,
    TextColumn,
    Texts,
)
from streamplug.index.layout import HEAD_BYTES, unpack_head
from streamplug.index.mapped import MappedArray, MappedFile
from streamplug.index.model import FileTable, Index, Schema, shards_digest
from streamplug.index.source import Source

_CHUNK = 1 << 20
_ADVICE = "remove it, or make it again with streamplug index build"


class Companion:
    """An open companion.

    Attributes:
        head: Its first bytes: two companions with the same have the same content.
        source: Which index.json it was made from.
        index: What that says; mapped.
    """

    def __init__(self, path: Path, where: str) -> None:
        """Map a companion.

        Args:
            path: Its file.
            where: What errors call it.

        Raises:
            InvalidIndexError: If it is damaged, or of an unknown version.
            PluginError: If it names a format or an encoding that is not available.
        """
        self._where = where
        self._file = MappedFile(path)
        self._digests: list[tuple[memoryview, str]] = []
        self.head = bytes(self._file.data[:HEAD_BYTES])
        try:
            said = self._description()
            self.source = Source(**said["source"])
            self.index = self._index(said)
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, StreamplugError):
                raise
            raise self._damaged(f"{type(error).__name__}: {error}") from None

    def verify(self) -> None:
        """Read all of it, and check it against its digests.

        Raises:
            InvalidIndexError: If it is damaged.
        """
        for data, digest in self._digests:
            if xxhash.xxh3_128_hexdigest(data) != digest:
                raise self._damaged("a digest differs")

    def _damaged(self, how: str) -> InvalidIndexError:
        return InvalidIndexError(f"{self._where} is damaged ({how:.200}); {_ADVICE}")

    def _description(self) -> Any:
        data = self._file.data
        head = unpack_head(self.head, self._where)
        if head.at + head.size != len(data):
            raise self._damaged(
                f"it has {len(data)} bytes, its head says {head.at + head.size}: cut short?"
            )
        text = data[head.at :]
        if xxhash.xxh3_128_digest(text) != head.digest:
            raise self._damaged("the digest of its description differs")
        return json.loads(bytes(text))

    def _index(self, said: Any) -> Index:
        shards = _count(said["shards"])
        starts = self._array(said["starts"], (shards + 1,), "<i8")
        if starts[0] != 0 or starts[-1] != _count(said["samples"]):
            raise self._damaged("the number of samples differs")
        for begin in range(0, shards, _CHUNK):
            part = starts[begin : begin + _CHUNK + 1]
            if (part[1:] < part[:-1]).any():
                raise self._damaged("a shard has less than no samples")
        if shards_digest(starts) != said["digest"]:
            raise self._damaged("the digest of its shards' sizes differs")
        schemas = [self._schema(entry) for entry in said["schemas"]]
        schema_of: MappedArray | Same = Same(0)
        if said["schema_of"] is not None:
            schema_of = self._array(said["schema_of"], (shards,), "<i4")
        elif len(schemas) != bool(shards):
            raise self._damaged(f"{len(schemas)} schemas")
        tables = {str(key): self._table(table, shards) for key, table in said["tables"].items()}
        needed = {f"raw_{role}" for schema in schemas for role in schema.format.roles}
        if missing := needed - tables.keys():
            raise self._damaged(f"no {', '.join(sorted(missing))}")
        return Index(
            starts, schemas, schema_of, tables, where=self._where, digest=str(said["digest"])
        )

    def _schema(self, entry: Any) -> Schema:
        try:
            return make_schema(entry)
        except StreamplugError as error:
            raise type(error)(f"{self._where}: {error}") from error.__cause__

    def _table(self, said: Any, shards: int) -> FileTable:
        hashes = {str(name): self._texts(column, shards) for name, column in said["hashes"].items()}
        sizes = self._array(said["bytes"], (shards,), "<u4", "<i8")
        return FileTable(
            self._texts(said["basenames"], shards), sizes, Digests(hashes), _count(said["total"])
        )

    def _texts(self, said: Any, shards: int) -> TextColumn:
        kind = said["kind"]
        if kind == "absent":
            return Absent()
        if kind == "numbered":
            digits, first = _count(said["digits"]), _count(said["first"])
            if digits > MAX_DIGITS or first >= 10**MAX_DIGITS:
                raise self._damaged("names with too long a number")
            return Numbered(str(said["prefix"]), digits, str(said["suffix"]), first)
        if kind == "hex":
            width = _count(said["data"]["shape"][1])
            return HexTexts(self._array(said["data"], (shards, width), "|u1"))
        if kind == "any":
            text = self._array(said["text"], (_count(said["text"]["shape"][0]),), "|u1")
            return Texts(self._array(said["bounds"], (shards + 1,), "<i8"), text)
        raise self._damaged(f"texts of kind {kind!r:.60}")

    def _array(self, said: Any, shape: tuple[int, ...], *dtypes: str) -> MappedArray:
        """Return a section, which must have this shape and one of these types."""
        at, dtype = _count(said["at"]), said["dtype"]
        if dtype not in dtypes or said["shape"] != list(shape):
            raise self._damaged(f"a column of {said['shape']!r:.60} {dtype!r:.20}")
        size = int(np.dtype(dtype).itemsize)
        for length in shape:  # in Python's numbers: no overflow
            size *= length
        if at % 8 or at + size > len(self._file.data):
            raise self._damaged("a column beyond its end")
        self._digests.append((self._file.data[at : at + size], str(said["xxh3_128"])))
        return self._file.array(self.head, at, dtype, shape)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.60} is no count")
    return value
