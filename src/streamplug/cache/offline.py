"""Local copies of data sets whose remote is unreachable."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from streamplug.cache.identity import check_identity, read_identity
from streamplug.cache.staging import stage_cache_file
from streamplug.cache.user_cache import scan_cache_dir
from streamplug.index import INDEX_NAME, Index, digest_index, parse_index
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import STATE_DIR

_LOG = logging.getLogger("streamplug")


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """What a cache has of a data set.

    Attributes:
        index: Its index.
        derived: The directory of what was made with the index of files that have none.
    """

    index: Index
    derived: Path | None


def has_index(directory: Path) -> bool:
    """Say whether a directory has the index of a data set."""
    return (directory / INDEX_NAME).exists()


def open_local_copy(
    directory: Path, url: str, selection: str | None, *, listed: bool
) -> LocalCopy | None:
    """Return what a cache has of a data set; None if it has no index, or a damaged one.

    Args:
        directory: The cache.
        url: Where the data set lies.
        selection: What tells which files are meant of those that have no index; None if there must be one.
        listed: Whether those are a choice of files rather than all of a directory, which may have an index.

    Raises:
        CacheConflictError: If the directory is the cache of another data set.
    """
    path = directory / INDEX_NAME
    with map_disk_errors(directory):
        mark = read_identity(directory)
        scanned = mark.get("files")
        if scanned != selection and (scanned is not None or listed):
            return None
        check_identity(directory, url, None)
        if not path.exists():
            return None
        data = path.read_bytes()
        if mark and mark.get("index") != digest_index(data):
            return None
        index = parse_index(load_imported_index(directory, data), str(path))
    return LocalCopy(index, scan_cache_dir(directory, url) if scanned else None)


def warn_offline(copy: LocalCopy, directory: Path, url: str, error: Exception) -> None:
    """Say once that a local copy is read, and how much of the data set it has."""
    total, found = len(copy.index), count_shards(copy, directory)
    rest = "" if found == total else "; a sample of another shard fails until it can be reached"
    _LOG.warning(
        "%s cannot be reached (%s): reading the copy in %s, which has the index and %d of %d shards%s; "
        "whether the data set has changed since is not known",
        url,
        error,
        directory,
        found,
        total,
        rest,
    )


def count_shards(copy: LocalCopy, directory: Path) -> int:
    """Return how many shards have all their files, raw or compressed, in a directory."""
    names = _names(directory)
    if copy.derived is not None:
        names |= _names(copy.derived)
    tables = copy.index.tables
    roles = [key.removeprefix("raw_") for key in tables if key.startswith("raw_")]

    def has(role: str, shard: int) -> bool:
        stored = tables.get(f"zip_{role}")
        return tables[f"raw_{role}"].basenames[shard] in names or (
            stored is not None and stored.basenames[shard] in names
        )

    return sum(all(has(role, shard) for role in roles) for shard in range(len(copy.index)))


def _names(directory: Path) -> set[str]:
    names: set[str] = set()
    for folder, _, files in os.walk(directory):
        inner = os.path.relpath(folder, directory).replace(os.sep, "/")
        names.update(files if inner == "." else (f"{inner}/{file}" for file in files))
    return names


def selection_key(spec: str | None, parts: Sequence[str]) -> str:
    """Return what tells a choice of files without an index from another: their format and names."""
    return json.dumps([spec, *parts])


def save_imported_index(directory: Path, data: bytes, translated: bytes) -> None:
    """Keep what an index.json was turned into, for when its remote cannot be reached."""
    path = _translated(directory, data)
    if not path.exists():
        with map_disk_errors(directory), stage_cache_file(directory, INDEX_NAME, path) as part:
            part.write_bytes(translated)


def load_imported_index(directory: Path, data: bytes) -> bytes:
    """Return what an index.json was turned into before; itself if it was not."""
    try:
        return _translated(directory, data).read_bytes()
    except FileNotFoundError:
        return data


def _translated(directory: Path, data: bytes) -> Path:
    return directory / STATE_DIR / "translated" / xxhash.xxh3_128_hexdigest(data)
