"""Download and parsing of the index.json of a data set."""

from __future__ import annotations

from pathlib import Path

from streamplug.cache.identity import claim_directory
from streamplug.cache.offline import save_imported_index
from streamplug.errors import NotFound, StorageError, Transient
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin_kit.error_mapping import is_local
from streamplug.scan.index_import import Translate
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.threads import make_ready
from streamplug.transfer.watchdog import StalledError

_SHORT_INDEX = 1 << 20  # bytes requested at first
_SOON = 16  # threads started while waiting for the index, as its shards will be read next


def open_index(
    storage: Storage,
    directory: Path,
    *,
    in_place: bool,
    retries: int,
    translate: Translate = bytes,
) -> Index:
    """Return the index of a data set, and claim its cache directory unless it is read `in_place`.

    `translate` imports an index.json of another library.

    Raises:
        CacheConflictError: If the directory is the cache of another data set.
    """
    data = None if in_place else _short(storage, retries)
    if data is None:
        data = _content(storage, retries)
    translated = translate(data)
    index = parse_index(translated, storage.url_of(INDEX_NAME))
    if not in_place:
        claim_directory(directory, storage.url, data)
        if translated is not data:
            save_imported_index(directory, data, translated)
    return index


def read_index(storage: Storage, retries: int, translate: Translate = bytes) -> Index:
    """Return the index of a data set from its index.json, without a cache."""
    data = _short(storage, retries)
    if data is None:
        data = _content(storage, retries)
    return parse_index(translate(data), storage.url_of(INDEX_NAME))


def _short(storage: Storage, retries: int) -> bytes | None:
    """Return a short index.json, as most are, in one request; None if it is longer or ranges fail."""

    def asked() -> bytes:
        make_ready(_SOON)
        try:
            return storage.read_range(INDEX_NAME, 0, _SHORT_INDEX)
        except StalledError:  # a download to a file shows progress
            return b""

    try:
        data = call_with_retries(asked, retries)
    except Transient:
        raise
    except StorageError:  # reading the whole file works, or raises a better error
        return None
    return data if 0 < len(data) < _SHORT_INDEX else None


def _content(storage: Storage, retries: int) -> bytes:
    try:
        return call_with_retries(lambda: storage.read(INDEX_NAME), retries)
    except NotFound as error:
        if error.bucket:
            raise
        where = "" if is_local(storage.url) else ", and region and endpoint if there are any"
        raise NotFound(
            f"{storage.url_of(INDEX_NAME)} does not exist: there is no data set, or its writer has not "
            f"finished; check remote=, local= and split={where}; files that need no index, such as "
            "Parquet, are read with their format= (--src-format)"
        ) from None
