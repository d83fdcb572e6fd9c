"""Parser of index.json files, which are untrusted.

The format is version 2 of mosaicml-streaming: ``{"shards": [entry, …], "version": 2}``, where an entry
repeats the schema and describes the files of one shard. Other keys at the top level are allowed.
"""

from __future__ import annotations

import json
from typing import Any

import xxhash

from streamplug.errors import InvalidIndexError, TruncatedIndexError, prefix_errors
from streamplug.index.builder import VERSION, IndexBuilder, is_version
from streamplug.index.json_entry_patterns import parse_entries_by_pattern
from streamplug.index.model import Index
from streamplug.plugin_kit import describe_misnamed
from streamplug.types import Buffer

INDEX_NAME = "index.json"

_MIN_PATTERN_BYTES = 1 << 16
"""Minimum size of an index.json that is parsed by a pattern of its entries."""


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
            return builder.index()
    try:
        return _parse(bytes(data), where)
    except RecursionError:
        raise InvalidIndexError(f"{where} is nested too deeply to be a data set's index") from None


def _parse(data: bytes, where: str) -> Index:
    builder = IndexBuilder(where)
    for number, entry in enumerate(_shards(data, where)):
        with prefix_errors(f"{where}: shard {number}"):
            builder.add(entry)
    return builder.index()


def _shards(data: bytes, where: str) -> list[Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        if found := describe_misnamed(data, where):
            raise InvalidIndexError(f"{where} is {found}, and no data set's index") from None
        cut = "is empty" if not data.strip() else f"is not whole, valid JSON ({error})"
        raise TruncatedIndexError(
            f"{where} {cut}; was the writer stopped before it finished? Write or copy the set again"
        ) from None
    return _check_document(document, where)


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
