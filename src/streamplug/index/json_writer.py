"""Serialization of index.json as in mosaicml-streaming: sorted keys, one line, no final newline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamplug.index.builder import VERSION
from streamplug.types import FileInfo


def file_entry(file: FileInfo | None) -> dict[str, Any] | None:
    """Return the entry of a file in an index."""
    if file is None:
        return None
    return {"basename": file.basename, "bytes": file.bytes, "hashes": dict(file.hashes)}


def format_index(shards: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]) -> bytes:
    """Return the content of an index.json; `extra` has further keys at the top level."""
    return json.dumps({**extra, "shards": shards, "version": VERSION}, sort_keys=True).encode()
