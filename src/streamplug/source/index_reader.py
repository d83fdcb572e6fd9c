"""Reading of the index.json of a data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamplug.errors import AccessDenied, NotFound, StorageError, Transient, TruncatedIndexError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin_kit import is_local
from streamplug.transfer import StalledError, call_with_retries

_FIRST_READ_BYTES = 1 << 20

Parse = Callable[[bytes, str], Index]


def read_index(
    storage: Storage, retries: int, parse: Parse = parse_index, *, in_place: bool = False
) -> tuple[Index, bytes]:
    """Return the index of a data set, and the content of its index.json, without a cache.

    Args:
        storage: The storage of the data set.
        retries: Number of retries of transient errors.
        parse: Returns an index from the content of an index.json, and its name in errors.
        in_place: Whether it is a file of this machine, which is read whole, and once.

    Raises:
        NotFound: If there is none.
        InvalidIndexError: If it is damaged.
    """

    def attempt() -> tuple[Index, bytes]:
        data = _read(storage, retries) if in_place else _read_short(storage, retries)
        return parse(data, storage.url_of(INDEX_NAME)), data

    try:
        return attempt()
    except TruncatedIndexError as error:
        if in_place:
            raise
        return call_with_retries(attempt, retries, error)


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
    except AccessDenied as error:
        if not error.may_be_missing:
            raise
        raise AccessDenied(
            f"{storage.url_of(INDEX_NAME)} may not exist, or {error}; without the right to list, services "
            "say so of what is missing, too: check remote= and split="
        ) from None
    except NotFound as error:
        if error.bucket:
            raise
        if storage.url.rpartition("/")[2] == INDEX_NAME:
            raise NotFound(
                f"{storage.url}: name the directory of the data set, not its index"
            ) from None
        if is_local(storage.url) and Path(storage.url_of(INDEX_NAME)).is_dir():
            raise NotFound(f"{storage.url_of(INDEX_NAME)} is a directory, and no index") from None
        where = "" if is_local(storage.url) else ", and region and endpoint if there are any"
        raise NotFound(
            f"{storage.url_of(INDEX_NAME)} does not exist: there is no data set, or its writer has not "
            f"finished; check remote=, local= and split={where}; files of formats that need no index, such "
            "as Parquet, are read with their format= (--src-format)"
        ) from None
