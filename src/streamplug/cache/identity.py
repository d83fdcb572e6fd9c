"""Records of the data set that a cache directory belongs to."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamplug.cache.staging import stage_cache_file
from streamplug.errors import CacheConflictError
from streamplug.index import INDEX_NAME, digest_index
from streamplug.plugin import join
from streamplug.transfer import STATE_DIR, cache_lock, map_disk_errors, state_directory

_LOG = logging.getLogger("streamplug.cache")
INDEX_STALL_SECONDS = 10.0  # the files are small


def claim_directory(
    directory: Path,
    url: str,
    index: bytes,
    selection: str | None = None,
    versions: str | None = None,
    *,
    endpoint: str = "",
) -> None:
    """Claim a directory as the cache of a data set; replace a damaged copy of the index.

    The content of the index.json is stored in the directory. For files without one, `selection` is their key,
    and `versions` the digest of their names, sizes and versions, after the name of their client and a space.
    `endpoint` is that of the storage.

    Raises:
        CacheConflictError: If it holds another data set, or another version of this one, or shares files with
            the cache of another data set in a directory above or below.
    """
    digest, index_path = digest_index(index), directory / INDEX_NAME
    _check_above(directory, url)
    claim = {
        "remote": url,
        "endpoint": endpoint,
        "index": digest,
        "files": selection,
        "versions": versions,
    }

    def is_claimed() -> bool:
        known = check_identity(directory, url, digest, selection, versions, endpoint=endpoint)
        return known and index_path.exists()

    with map_disk_errors(directory):
        if is_claimed():
            identity = read_identity(directory)
            if any(identity.get(key) != claim[key] for key in ("endpoint", "files", "versions")):
                with suppress(OSError), cache_lock(directory, INDEX_NAME, INDEX_STALL_SECONDS):
                    _claim(directory, claim)
            return
        with cache_lock(directory, INDEX_NAME, INDEX_STALL_SECONDS):
            if not is_claimed():  # no other process claimed it
                _check_below(directory, url, index)
                if index_path.exists() and digest_index(index_path.read_bytes()) != digest:
                    _LOG.warning("%s is damaged: fetching it again", index_path)
                _claim(directory, claim)
                with stage_cache_file(directory, INDEX_NAME, index_path) as part:
                    part.write_bytes(index)


def _claim(directory: Path, claim: Mapping[str, str | None]) -> None:
    """Write the identity file; the caller holds the `cache_lock` of the index."""
    identity = {key: value for key, value in claim.items() if value is not None}
    with stage_cache_file(directory, INDEX_NAME, _identity_path(directory)) as part:
        part.write_text(json.dumps(identity))


def read_identity(directory: Path) -> dict[str, Any]:
    """Return the identity file of a cache; empty if it is missing or damaged."""
    try:
        identity = json.loads(_identity_path(directory).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return identity if isinstance(identity, dict) else {}


def check_identity(
    directory: Path,
    url: str,
    digest: str | None,
    selection: str | None = None,
    versions: str | None = None,
    *,
    endpoint: str = "",
) -> bool:
    """Return whether a directory is a cache of this data set; compare the index unless `digest` is None.

    `selection`, `versions` and `endpoint` are those of `claim_directory`; not all caches have the latter two.

    Raises:
        CacheConflictError: If it holds another data set, or another version of this one.
    """
    advice = "pass another local=, or remove the directory"
    identity_path = _identity_path(directory)
    # A user may remove a cache but not its sibling state directory.
    is_claimed = identity_path.exists() and directory.is_dir() and any(directory.iterdir())
    if is_claimed:
        try:
            saved: dict[str, Any] = json.loads(identity_path.read_bytes())
            origin, saved_digest = saved["remote"], saved.get("index")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CacheConflictError(f"{identity_path} is damaged; {advice}") from None
        if origin != url:
            raise CacheConflictError(
                f"{directory} is the cache of {origin}, not of {url}; {advice}"
            )
    if digest is None:
        return is_claimed
    index_path = directory / INDEX_NAME
    is_rewritten = is_claimed and _differ(saved.get("versions"), versions)
    if index_path.exists():
        is_same = digest_index(index_path.read_bytes()) == digest
    else:  # a user may remove the index but not the shards
        has_files = is_claimed and any(path.name != STATE_DIR for path in directory.iterdir())
        is_same = not has_files or saved_digest in (None, digest)
        is_rewritten = is_rewritten and has_files
    if not is_same or is_rewritten:
        if is_claimed and saved_digest == digest and not is_rewritten:
            return False  # the local copy is damaged, the data set has not changed
        why = f"it is not the one at {url}"
        if is_claimed:
            why = _what_differs(saved, url, selection, endpoint)
        raise CacheConflictError(f"{directory} already holds a data set: {why}; {advice}")
    return is_claimed


def _what_differs(saved: Mapping[str, Any], url: str, selection: str | None, endpoint: str) -> str:
    """Return why the data set at a URL is not the one of a record."""
    if saved.get("files") != selection:
        return f"it has other files of {url}, or as another format"
    if saved.get("endpoint", endpoint) != endpoint:
        before, now = (text or "the usual endpoint" for text in (saved["endpoint"], endpoint))
        return f"it is {url} of {before}, not of {now}, which has others there"
    return f"{url} was written again since"


def _differ(saved: object, versions: str | None) -> bool:
    """Return whether versions of files differ, as far as one client told them both."""
    if versions is None or not isinstance(saved, str) or saved == versions:
        return False
    return saved.rpartition(" ")[0] == versions.rpartition(" ")[0]


def _check_above(directory: Path, url: str) -> None:
    """Raise CacheConflictError if a directory above is the cache of a data set that has files in this one."""
    for above in directory.absolute().parents:
        other = read_identity(above).get("remote")
        inner = directory.absolute().relative_to(above).as_posix()
        if isinstance(other, str) and join(other, inner) != url:
            try:
                index = (above / INDEX_NAME).read_bytes()
            except OSError:  # without an index, which files it has is not known
                continue
            if _names_folder(index, inner):
                raise _shared_error(above, other, directory, url)


def _check_below(directory: Path, url: str, index: bytes) -> None:
    """Raise CacheConflictError if one with files of this data set is the cache of another data set."""
    folders = [directory]
    while folders:
        above = folders.pop()
        for path in above.iterdir() if above.is_dir() else ():
            folder = path.relative_to(directory).as_posix()
            if path.name == STATE_DIR or not path.is_dir() or not _names_folder(index, folder):
                continue
            other = read_identity(path).get("remote")
            if other not in (None, join(url, folder)):
                raise _shared_error(directory, url, path, other)
            folders.append(path)


def _names_folder(index: bytes, folder: str) -> bool:
    """Return whether an index.json has a string that begins with the path of a folder.

    The index may be that of another library, so it is not parsed.
    """
    texts = {json.dumps(f"{folder}/", ensure_ascii=escaped)[:-1] for escaped in (True, False)}
    texts |= {text.replace("/", r"\/") for text in texts}
    return any(text.encode(errors="surrogatepass") in index for text in texts)


def _shared_error(outer: Path, outer_url: str, inner: Path, inner_url: str) -> CacheConflictError:
    return CacheConflictError(
        f"{outer}, the cache of {outer_url}, and {inner}, the cache of {inner_url}, would share files; "
        "pass another local= to one of them"
    )


def _identity_path(directory: Path) -> Path:
    return state_directory(directory) / "origin.json"
