"""Download and parsing of the index.json of a data set."""

from __future__ import annotations

from pathlib import Path

from streamplug.cache.identity import claim_directory
from streamplug.cache.offline import save_imported_index
from streamplug.errors import NotFound, StorageError, Transient, TruncatedIndexError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin_kit.error_mapping import is_local
from streamplug.scan.index_import import Translate
from streamplug.transfer.retry import call_with_retries
from streamplug.transfer.stall_timeout import StalledError

_FIRST_READ_BYTES = 1 << 20


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
    if in_place:
        return _parse(_read(storage, retries), storage, translate)[0]
    index, data, translated = _read_whole(storage, retries, translate)
    claim_directory(directory, storage.url, data)
    if translated is not data:
        save_imported_index(directory, data, translated)
    return index


def read_index(storage: Storage, retries: int, translate: Translate = bytes) -> Index:
    """Return the index of a data set from its index.json, without a cache."""
    return _read_whole(storage, retries, translate)[0]


def _read_whole(storage: Storage, retries: int, translate: Translate) -> tuple[Index, bytes, bytes]:
    """Return an index, its bytes and their translation; read it again if it was cut short."""

    def attempt() -> tuple[Index, bytes, bytes]:
        return _parse(_read_short(storage, retries), storage, translate)

    try:
        return attempt()
    except TruncatedIndexError as error:
        return call_with_retries(attempt, retries, error)


def _parse(data: bytes, storage: Storage, translate: Translate) -> tuple[Index, bytes, bytes]:
    translated = translate(data)
    return parse_index(translated, storage.url_of(INDEX_NAME)), data, translated


def _read_short(storage: Storage, retries: int) -> bytes:
    """Return an index.json, in one request if it is short, as most are."""

    def read_start() -> bytes:
        try:
            return storage.read_range(INDEX_NAME, 0, _FIRST_READ_BYTES)
        except StalledError:  # a download to a file shows progress
            return b""

    try:
        data = call_with_retries(read_start, retries)
    except Transient:
        raise
    except StorageError:  # reading the whole file works, or raises a better error
        data = b""
    return data if 0 < len(data) < _FIRST_READ_BYTES else _read(storage, retries)


def _read(storage: Storage, retries: int) -> bytes:
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
