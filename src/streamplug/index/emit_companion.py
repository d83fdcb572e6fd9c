"""Writes the companion of an index.json: its columns, ready to be mapped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from streamplug.index.columns import Absent, Digests, HexTexts, Numbered, Same, TextColumn, Texts
from streamplug.index.layout import ALIGNMENT, HEAD_BYTES, Head
from streamplug.index.model import FileTable, Index
from streamplug.index.source import Source

_CHUNK = 1 << 21  # elements


def write_companion(
    index: Index, source: Source, path: Path, report: Callable[[str], None] = lambda _: None
) -> None:
    """Write the companion of an index.json.

    Args:
        index: What the index.json says.
        source: Which index.json that is.
        path: The file to write.
        report: Told which column is being written.
    """
    with path.open("wb") as file:
        file.write(bytes(HEAD_BYTES))
        description = json.dumps(_description(index, source, _Sections(file, report))).encode()
        at = file.tell()
        file.write(description)
        file.seek(0)
        file.write(Head(at, len(description), xxhash.xxh3_128_digest(description)).pack())


class _Sections:
    """Writes columns one after the other."""

    def __init__(self, file: BinaryIO, report: Callable[[str], None]) -> None:
        self._file, self._report = file, report

    def put(self, name: str, column: NDArray[Any]) -> dict[str, Any]:
        """Write a column in little-endian order, and return where and what it is."""
        self._report(name)
        self._file.write(bytes(-self._file.tell() % ALIGNMENT))
        at, digest = self._file.tell(), xxhash.xxh3_128()
        dtype = column.dtype.newbyteorder("<")
        for start in range(0, len(column), _CHUNK):
            part = np.ascontiguousarray(column[start : start + _CHUNK], dtype).data
            self._file.write(part)
            digest.update(part)
        shape = list(column.shape)
        return {"at": at, "dtype": dtype.str, "shape": shape, "xxh3_128": digest.hexdigest()}


def _description(index: Index, source: Source, sections: _Sections) -> dict[str, Any]:
    return {
        "source": asdict(source),
        "shards": len(index),
        "samples": index.size,
        "digest": index.digest,
        "schemas": [schema.entry for schema in index.schemas],
        "schema_of": (
            None
            if isinstance(index.schema_of, Same)
            else sections.put("schema_of", index.schema_of.astype(np.int32))
        ),
        "starts": sections.put("starts", index.starts),
        "tables": {key: _table(key, table, sections) for key, table in index.tables.items()},
    }


def _table(key: str, table: FileTable, sections: _Sections) -> dict[str, Any]:
    sizes = table.bytes
    if not len(sizes) or int(sizes.max()) < 1 << 32:
        sizes = sizes.astype(np.uint32)
    return {
        "bytes": sections.put(f"{key}.bytes", sizes),
        "total": table.total,
        "basenames": _texts(f"{key}.basenames", table.basenames, sections),
        "hashes": {
            name: _texts(f"{key}.hashes.{name}", column, sections)
            for name, column in _columns(table.hashes).items()
        },
    }


def _columns(hashes: object) -> Mapping[str, TextColumn]:
    if not isinstance(hashes, Digests):
        raise TypeError(f"a companion holds digests in columns, not in {type(hashes).__name__}")
    return hashes.columns


def _texts(name: str, column: object, sections: _Sections) -> dict[str, Any]:
    if isinstance(column, Absent):
        return {"kind": "absent"}
    if isinstance(column, Numbered):
        return {"kind": "numbered", **asdict(column)}
    if isinstance(column, HexTexts):
        return {"kind": "hex", "data": sections.put(name, column.data)}
    if isinstance(column, Texts):
        bounds = sections.put(f"{name}.bounds", column.bounds)
        return {"kind": "any", "bounds": bounds, "text": sections.put(name, column.text)}
    raise TypeError(f"{name}: a companion holds no {type(column).__name__}")
