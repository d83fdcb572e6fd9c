"""The index in a cache whose remote is unreachable, and the warning about it."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamplug.cache.identity import check_identity, read_identity
from streamplug.index import INDEX_NAME, Index, digest_index, parse_index
from streamplug.transfer import map_disk_errors

_LOG = logging.getLogger("streamplug")


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """The copy of an index in a cache directory, and its record there."""

    data: bytes
    path: Path
    identity: Mapping[str, Any]

    def parse(self, data: bytes) -> Index:
        """Return the index that `data`, made of that of the copy, has."""
        index = parse_index(data, str(self.path))
        # The name of the client is left out, as in the index of a scan.
        index.versions = str(self.identity.get("versions") or "").rpartition(" ")[2]
        return index


def read_local_copy(
    directory: Path, url: str, selections: Collection[str | None]
) -> LocalCopy | None:
    """Return the local copy of the index of a data set; None if it is missing, damaged or of other files.

    Args:
        directory: The cache directory.
        url: Location of the data set.
        selections: Keys of the files that the index may be of, as for `claim_directory`; None is an
            index.json.

    Raises:
        CacheConflictError: If the directory is the cache of another data set.
    """
    path = directory / INDEX_NAME
    with map_disk_errors(directory):
        identity = read_identity(directory)
        if identity.get("files") not in selections:
            return None
        check_identity(directory, url, None)
        if not path.exists():
            return None
        data = path.read_bytes()
    is_damaged = identity and identity.get("index") != digest_index(data)
    return None if is_damaged else LocalCopy(data, path, identity)


def warn_offline(
    index: Index, derived: Path | None, directory: Path, url: str, error: Exception
) -> None:
    """Warn that a local copy is read, with the number of its shards; `derived` is the scan directory."""
    total, num_cached = len(index), _count_shards(index, derived, directory)
    rest = (
        "" if num_cached == total else "; a sample of another shard fails until it can be reached"
    )
    _LOG.warning(
        "%s cannot be reached (%s): reading the copy in %s, which has the index and %d of %d shards%s; "
        "whether the data set has changed since is not known",
        url,
        error,
        directory,
        num_cached,
        total,
        rest,
    )


def describe_copy(index: Index, derived: Path | None, directory: Path) -> str:
    """Return what a local copy has, and how it is read without its remote, for an error about that."""
    total, num_cached = len(index), _count_shards(index, derived, directory)
    if num_cached < total:
        return f"the copy in {directory} has the index and {num_cached} of {total} shards"
    how = "pass it as local= without remote=, which reads it in place"
    if derived is not None:  # its index has files that only the record of the remote leads to
        form = index.schema(0).format
        how = (
            "give remote= the place where the files are now, and local= an empty directory"
            if form.is_composed
            else f"name its files, such as remote='{directory}/**/*.{form.suffix}' without local="
        )
    return f"the copy in {directory} is complete, with {total} of {total} shards: {how}"


def _count_shards(index: Index, derived: Path | None, directory: Path) -> int:
    """Return the number of shards whose files are all in a directory, raw or compressed."""
    names = _names(directory)
    if derived is not None:
        names |= _names(derived)
    # A file that is not stored compressed has an empty name among the compressed ones.
    names_of_roles = [
        [table.basenames for table in tables if table is not None] for tables in index.file_tables
    ]
    return sum(
        all(any(column[shard] in names for column in columns) for columns in names_of_roles)
        for shard in range(len(index))
    )


def _names(directory: Path) -> set[str]:
    names: set[str] = set()
    for folder, _, files in os.walk(directory):
        inner = os.path.relpath(folder, directory).replace(os.sep, "/")
        names.update(files if inner == "." else (f"{inner}/{file}" for file in files))
    return names
