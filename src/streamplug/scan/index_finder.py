"""From where a data set lies to its index: its index.json, or the companion of a large one."""

from __future__ import annotations

import logging
from pathlib import Path

from streamplug.cache.identity import claim, in_use, take_into_use
from streamplug.cache.offline import keep_translation
from streamplug.cache.staging import arriving
from streamplug.errors import InvalidIndexError, NotFound, StorageError, Transient
from streamplug.index import (
    COMPANION_NAME,
    HEAD_BYTES,
    INDEX_NAME,
    Companion,
    Index,
    parse_index,
    sample_digest,
    sample_ranges,
    source_of,
)
from streamplug.index.mapped import MappedFile
from streamplug.interfaces import Storage
from streamplug.plugin_kit.error_mapping import is_local
from streamplug.scan.index_import import Translate
from streamplug.transfer.disk_errors import local_errors
from streamplug.transfer.file_lock import cache_lock
from streamplug.transfer.retry import retrying
from streamplug.transfer.threads import make_ready
from streamplug.transfer.watchdog import StalledError

LARGE_INDEX = 1 << 24
"""Bytes of an index.json from which on its companion is looked for."""

_CHECKED = 64 << 20
"""Bytes of a cached companion up to which it is checked whenever it is opened; others when they come."""
_SHORT_INDEX = 1 << 20
"""Bytes up to which an index.json comes with the first request."""

_SOON = 16
"""Threads that are started while the index comes: what is in it is likely to be asked for next."""

_LOG = logging.getLogger("streamplug.scan")


def open_index(
    storage: Storage,
    directory: Path,
    *,
    in_place: bool,
    retries: int,
    translate: Translate = bytes,
) -> Index:
    """Return the index of a data set.

    Args:
        storage: Where it lies.
        directory: Its cache, which is taken into use; or `storage` itself.
        in_place: Whether it is read where it lies.
        retries: How often a failed request is tried again.
        translate: Makes an index.json of ours of what is there.

    Raises:
        StorageError: If the index cannot be had.
        InvalidIndexError: If it cannot be used.
        CacheConflictError: If the directory serves another data set.
    """
    data = None if in_place else _short(storage, retries)
    if data is None:
        index = _through_companion(storage, directory, in_place=in_place, retries=retries)
        if index is not None:
            return index
        data = _content(storage, retries)
    translated = translate(data)
    index = parse_index(translated, storage.url_of(INDEX_NAME))
    if not in_place:
        take_into_use(directory, storage.url, data)
        if translated is not data:
            keep_translation(directory, data, translated)
    return index


def read_index(storage: Storage, retries: int, translate: Translate = bytes) -> Index:
    """Return the index of a data set from its index.json; nothing is kept.

    Raises:
        StorageError: If it cannot be had.
        InvalidIndexError: If it cannot be used.
    """
    data = _short(storage, retries)  # without a file in between
    if data is None:
        data = _content(storage, retries)
    return parse_index(translate(data), storage.url_of(INDEX_NAME))


def _short(storage: Storage, retries: int) -> bytes | None:
    """Return the index.json if it is short, as most are, in one request."""
    most = min(_SHORT_INDEX, LARGE_INDEX)
    if not most:
        return None

    def asked() -> bytes:
        make_ready(_SOON)
        try:
            return storage.read_range(INDEX_NAME, 0, most)
        except StalledError:  # it may come slowly, which is seen only in a file
            return b""

    try:
        data = retrying(asked, retries)
    except Transient:
        raise
    except StorageError:  # reading all of it will tell what is wrong, or work
        return None
    return data if 0 < len(data) < most else None


def _content(storage: Storage, retries: int) -> bytes:
    try:
        return retrying(lambda: storage.read(INDEX_NAME), retries)
    except NotFound as error:
        if error.bucket:
            raise
        where = "" if is_local(storage.url) else ", and region and endpoint if there are any"
        raise NotFound(
            f"{storage.url_of(INDEX_NAME)} does not exist: there is no data set, or its writer has not "
            f"finished; check remote=, local= and split={where}; files that need no index, such as "
            "Parquet, are read with their format= (--src-format)"
        ) from None


def _through_companion(
    storage: Storage, directory: Path, *, in_place: bool, retries: int
) -> Index | None:
    """Return what the companion says, or None if there is none that can be used."""
    try:
        size = _size(storage, retries)
        if size < LARGE_INDEX:
            return None
        path = directory / COMPANION_NAME
        if in_place and not path.exists():
            return None
        companion = (
            Companion(path, str(path)) if in_place else _cached(storage, directory, size, retries)
        )
        check_source(companion, storage, size, retries)
        if in_place:
            _check_age(companion, directory)
    except NotFound:
        return None
    except (InvalidIndexError, StorageError) as error:
        # Also a storage that cannot read parts of a file may have the index.json.
        _LOG.warning("%s: reading %s instead", error, storage.url_of(INDEX_NAME))
        return None
    return companion.index


def _size(storage: Storage, retries: int) -> int:
    try:
        return retrying(lambda: storage.stat(INDEX_NAME), retries).size
    except (
        StorageError
    ):  # reading it will tell what is wrong, or work where a server tells no sizes
        return 0


def check_source(companion: Companion, storage: Storage, size: int, retries: int) -> None:
    """Check that a companion is that of an index.json, without reading all of that.

    Args:
        companion: It.
        storage: Where the index.json is.
        size: The size of that.
        retries: How often a failed request is tried again.

    Raises:
        InvalidIndexError: If it is not.
    """
    pieces = retrying(lambda: storage.read_ranges(INDEX_NAME, sample_ranges(size)), retries)
    if size != companion.source.bytes or sample_digest(pieces) != companion.source.sample:
        raise _stale(storage.url_of(COMPANION_NAME))


def _stale(place: str) -> InvalidIndexError:
    return InvalidIndexError(
        f"{place} was made from another index.json; make it again with streamplug index build"
    )


def _check_age(companion: Companion, directory: Path) -> None:
    """Compare all of an index.json that was changed after the companion was made."""
    index = directory / INDEX_NAME
    changed = index.stat().st_mtime_ns > (directory / COMPANION_NAME).stat().st_mtime_ns
    if changed and source_of(MappedFile(index).data) != companion.source:
        raise _stale(str(directory / COMPANION_NAME))


def _cached(storage: Storage, directory: Path, size: int, retries: int) -> Companion:
    """Return the companion in a cache, bringing it there if need be.

    Raises:
        NotFound: If there is none.
        InvalidIndexError: If it is damaged, or that of another index.json.
        CacheConflictError: If the directory serves another data set.
    """
    head = _remote_head(storage, retries)
    path = directory / COMPANION_NAME
    with local_errors(directory):
        there = _whole(path, head)
        if there is not None and in_use(directory, storage.url, None):
            return there
        with cache_lock(directory, COMPANION_NAME):
            there = _whole(path, head)
            if there is not None and in_use(directory, storage.url, None):
                return there  # another process brought it meanwhile
            with arriving(directory, COMPANION_NAME, path) as part:
                retrying(lambda: storage.download(COMPANION_NAME, part), retries)
                companion = Companion(part, storage.url_of(COMPANION_NAME))
                companion.verify()
                check_source(companion, storage, size, retries)
                in_use(directory, storage.url, companion.source)
                claim(directory, storage.url, companion.source, COMPANION_NAME)
        return Companion(path, str(path))


def _remote_head(storage: Storage, retries: int) -> bytes:
    try:
        return retrying(lambda: storage.read_range(COMPANION_NAME, 0, HEAD_BYTES), retries)
    except StorageError as error:  # some storages do not tell a missing object from a secret one
        raise NotFound(str(error)) from None


def _whole(path: Path, head: bytes) -> Companion | None:
    """Return the companion that is in a cache, if it has this head and is not damaged."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        if file.read(HEAD_BYTES) != head:
            return None
    try:
        companion = Companion(path, str(path))
        if path.stat().st_size <= _CHECKED:
            companion.verify()  # or else the shards that it describes would be blamed
    except InvalidIndexError as error:
        _LOG.warning("%s: fetching it again", error)
        return None
    return companion
