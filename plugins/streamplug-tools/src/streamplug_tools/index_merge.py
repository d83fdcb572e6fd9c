"""Merging of the indexes of data sets in folders of one location; shards stay in place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from streamplug.errors import ConfigError, InvalidIndexError, NotFound
from streamplug.index import (
    INDEX_NAME,
    NAME_RULES,
    VALUE_SIZES,
    Schema,
    find_mismatches,
    format_index,
    normalize_basename,
    parse_index,
    validate_basename,
)
from streamplug.interfaces import Storage
from streamplug.transfer import call_with_retries


def merge_indexes(parts: Sequence[tuple[Storage, str]]) -> tuple[bytes, int]:
    """Return one index for data sets in folders below it, and its number of shards.

    Args:
        parts: Storage and folder of each part, in the order of their samples.

    Raises:
        ConfigError: If the columns of parts differ, a file is in two of them, or an index cannot hold the
            name of a folder.
        NotFound: If a part has no index.
        InvalidIndexError: If the index of a part is invalid.
    """
    entries: list[dict[str, Any]] = []
    extra: dict[str, list[Any]] = {}
    first: tuple[str, Schema] | None = None
    owners: dict[str, str] = {}
    for storage, folder in parts:
        key, part = f"{folder}/{INDEX_NAME}", storage.url_of(folder)
        _check_name(folder, part)
        try:
            data = call_with_retries(partial(storage.read, key))
        except NotFound:
            raise NotFound(
                f"{storage.url_of(key)} does not exist: {part} is no part, or its writer has not finished"
            ) from None
        for schema in parse_index(data, storage.url_of(key)).schemas:  # raises if it is damaged
            first = first or (part, schema)
            check_columns(part, schema, *first)
        document = json.loads(data)
        part_entries = [_prefix_basenames(entry, folder) for entry in document["shards"]]
        for name in (entry["raw_data"]["basename"] for entry in part_entries):
            if (owner := owners.setdefault(name, part)) != part:
                raise ConfigError(
                    f"{name} is in two parts, {owner} and {part}, so its samples would be repeated; leave "
                    "one of them out"
                )
        entries += part_entries
        if VALUE_SIZES in document:
            files = _prefix_basenames(dict(enumerate(document[VALUE_SIZES])), folder)
            extra.setdefault(VALUE_SIZES, []).extend(files.values())
    return format_index(entries, extra), len(entries)


def write_index(index: bytes, homes: Sequence[Storage]) -> None:
    """Write an index to storages."""
    for home in homes:
        call_with_retries(partial(home.write, INDEX_NAME, index))


def _check_name(folder: str, part: str) -> None:
    try:
        validate_basename(folder, "folder")
    except InvalidIndexError:
        raise ConfigError(
            f"{part}: an index cannot name files in the folder {folder!r:.200}: {NAME_RULES}; rename it"
        ) from None


def check_columns(part: str, schema: Schema, first_part: str, expected: Schema) -> None:
    """Check that two parts of a data set, given by their URLs and schemas, have the same columns.

    Raises:
        ConfigError: If they differ.
    """
    for mismatch in find_mismatches(expected, schema):
        raise ConfigError(
            f"{mismatch.describe(part, first_part)}; all parts of a data set need the same columns, so no "
            f"index was written: {mismatch.remedy(part, first_part)}"
        )


def _prefix_basenames(entry: dict[Any, Any], folder: str) -> dict[Any, Any]:
    files = {key: v for key, v in entry.items() if isinstance(v, dict) and "basename" in v}
    return entry | {
        key: {**v, "basename": normalize_basename(f"{folder}/{v['basename']}")}
        for key, v in files.items()
    }
