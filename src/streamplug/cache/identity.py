"""Records of the data set that a cache directory belongs to."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamplug.cache.staging import stage_cache_file
from streamplug.errors import CacheConflictError
from streamplug.index import INDEX_NAME, digest_index
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.file_lock import cache_lock, state_directory

_LOG = logging.getLogger("streamplug.cache")
_STALL_SECONDS = 10.0  # the files are small


def claim_directory(directory: Path, url: str, index: bytes, selection: str | None = None) -> None:
    """Claim a directory as the cache of a data set; replace a damaged copy of the index.

    The content of the index.json is stored in the directory; `selection` is the `selection_key` of files
    without one.

    Raises:
        CacheConflictError: If it holds another data set, or another version of this one.
    """
    digest, known = digest_index(index), directory / INDEX_NAME
    with map_disk_errors(directory):
        if check_identity(directory, url, digest) and known.exists():
            if read_identity(directory).get("files") != selection:
                with suppress(OSError), cache_lock(directory, INDEX_NAME, _STALL_SECONDS):
                    _claim(directory, url, digest, selection)
            return
        with cache_lock(directory, INDEX_NAME, _STALL_SECONDS):
            if not (
                check_identity(directory, url, digest) and known.exists()
            ):  # no other process claimed it
                if known.exists() and digest_index(known.read_bytes()) != digest:
                    _LOG.warning("%s is damaged: fetching it again", known)
                _claim(directory, url, digest, selection)
                with stage_cache_file(directory, INDEX_NAME, known) as part:
                    part.write_bytes(index)


def _claim(directory: Path, url: str, digest: str, selection: str | None) -> None:
    """Write the identity file; the caller holds the `cache_lock` of the index."""
    mark = {"remote": url, "index": digest}
    if selection is not None:
        mark["files"] = selection
    with stage_cache_file(directory, INDEX_NAME, _mark(directory)) as part:
        part.write_text(json.dumps(mark))


def read_identity(directory: Path) -> dict[str, Any]:
    """Return the identity file of a cache; empty if it is missing or damaged."""
    try:
        mark = json.loads(_mark(directory).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return mark if isinstance(mark, dict) else {}


def check_identity(directory: Path, url: str, digest: str | None) -> bool:
    """Return whether a directory is a cache of this data set; compare the index unless `digest` is None.

    Raises:
        CacheConflictError: If it holds another data set, or another version of this one.
    """
    advice = "pass another local=, or remove the directory"
    mark = _mark(directory)
    # A user may remove a cache but not its sibling state directory.
    marked = mark.exists() and directory.is_dir() and any(directory.iterdir())
    if marked:
        try:
            said: dict[str, Any] = json.loads(mark.read_bytes())
            origin, made_from = said["remote"], said.get("index")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CacheConflictError(f"{mark} is damaged; {advice}") from None
        if origin != url:
            raise CacheConflictError(
                f"{directory} is the cache of {origin}, not of {url}; {advice}"
            )
    known = directory / INDEX_NAME
    if digest is not None and known.exists() and digest_index(known.read_bytes()) != digest:
        if marked and made_from == digest:
            return False  # the local copy is damaged, the data set has not changed
        why = f"{url} was written again since" if marked else f"it is not the one at {url}"
        raise CacheConflictError(f"{directory} already holds a data set: {why}; {advice}")
    return marked


def _mark(directory: Path) -> Path:
    return state_directory(directory) / "origin.json"
