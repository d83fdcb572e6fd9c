"""Local copies of data sets whose remote is unreachable."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import xxhash

from streamplug.cache.identity import INDEX_STALL_SECONDS, check_identity, read_identity
from streamplug.cache.staging import stage_cache_file
from streamplug.cache.user_cache import scan_cache_dir
from streamplug.index import INDEX_NAME, Index, digest_index, parse_index
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import STATE_DIR, cache_lock

_LOG = logging.getLogger("streamplug")


def open_local_copy(
    directory: Path, url: str, selection: str | None, *, listed: bool
) -> tuple[Index, Path | None] | None:
    """Return the index of the local copy of a data set, and the scan directory if a scan has made it.

    None if the index is missing, damaged or of other files. `selection` is the key of files without an index;
    None requires an index. If the files are not `listed` one by one, their directory may have an index of its
    own.
    """
    path = directory / INDEX_NAME
    with map_disk_errors(directory):
        identity = read_identity(directory)
        scanned = identity.get("files")
        if scanned != selection and (scanned is not None or listed):
            return None
        check_identity(directory, url, None)
        if not path.exists():
            return None
        data = path.read_bytes()
        if identity and identity.get("index") != digest_index(data):
            return None
        index = parse_index(load_imported_index(directory, data), str(path))
        # The name of the client is left out, as in the index of a scan.
        index.versions = str(identity.get("versions") or "").rpartition(" ")[2]
    return index, scan_cache_dir(directory, url) if scanned else None


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


def save_imported_index(directory: Path, data: bytes, translated: bytes) -> None:
    """Save the imported form of an index.json for offline use; replace that of another version."""
    path = _translated(directory, data)
    with map_disk_errors(directory):
        if _has_content(path, translated):
            return
        # Without the lock, another process takes the staging file for that of a dead one, and removes it.
        with cache_lock(directory, INDEX_NAME, INDEX_STALL_SECONDS):
            if not _has_content(path, translated):
                with stage_cache_file(directory, INDEX_NAME, path) as part:
                    part.write_bytes(translated)


def _has_content(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except FileNotFoundError:
        return False


def load_imported_index(directory: Path, data: bytes) -> bytes:
    """Return the saved import of an index.json; `data` itself if there is none."""
    try:
        return _translated(directory, data).read_bytes()
    except FileNotFoundError:
        return data


def _translated(directory: Path, data: bytes) -> Path:
    return directory / STATE_DIR / "translated" / xxhash.xxh3_128_hexdigest(data)
