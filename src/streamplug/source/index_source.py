"""Data sets with an index.json: reading it, and opening the cache and the files of their shards."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING

from streamplug.cache import (
    CacheOptions,
    ShardStore,
    claim_directory,
    default_cache_dir,
    describe_copy,
    parse_cache_limit,
    read_local_copy,
    source_cache_dir,
    warn_offline,
)
from streamplug.errors import (
    AccessDenied,
    ConfigError,
    NotFound,
    PluginError,
    StorageError,
    Transient,
    TruncatedIndexError,
)
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin import absolute_location, local_path
from streamplug.plugin_kit import is_local
from streamplug.read import apply_decoders, limit_values
from streamplug.source.access import ShardFiles, find_access
from streamplug.source.open_stream import OpenStream, wrap_storage
from streamplug.source.source import Source
from streamplug.transfer import (
    PROBE_RETRIES,
    Observer,
    ProbeStorage,
    StalledError,
    TimeoutStorage,
    call_with_retries,
    observer_context,
)

if TYPE_CHECKING:
    from streamplug.stream import Stream


_FIRST_READ_BYTES = 1 << 20
_MAX_UNUSED_SECONDS = 7 * 24 * 3600
"""Time since the last opening after which the decompressed shards of an earlier version are removed."""

Parse = Callable[[bytes, str], Index]

_LOG = logging.getLogger("streamplug")


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


class IndexSource(Source):
    """``index``: data sets with an index.json; a subclass finds the index otherwise."""

    def find_index(
        self, stream: Stream, storage: Storage, retries: int
    ) -> tuple[Index, Path | None]:
        """Return the index of a stream, and the directory of files that were made with it, if any.

        Args:
            stream: The stream.
            storage: Its storage.
            retries: Number of retries of transient errors.

        Raises:
            StreamplugError: If there is no index, or it cannot be read.
        """
        return self.read_index(stream, storage, retries), None

    def read_index(
        self, stream: Stream, storage: Storage, retries: int, parse: Parse = parse_index
    ) -> Index:
        """Return the index in index.json, parsed by `parse`, and claim the cache directory for it."""
        location = stream.location
        index, data = read_index(storage, retries, parse, in_place=location.in_place)
        if keeps_index(stream):
            endpoint = location.storage.endpoint
            claim_directory(location.directory, storage.url, data, endpoint=endpoint)
        return index

    def find_copy(self, stream: Stream, storage: Storage) -> tuple[Index, Path | None] | None:
        """Return what `find_index` returned, from the cache of a data set that cannot be reached."""
        copy = read_local_copy(stream.location.directory, storage.url, {None})
        return None if copy is None else (copy.parse(copy.data), None)

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        """Open a data set; see `Source.open`."""
        storage, in_place = stream.storage, stream.location.in_place
        if stream.local is None and not in_place:
            default_cache_dir()
        offline = False
        with observer_context(observer, storage.url):
            if in_place:
                index, derived = stream.find_index(storage, stream.retries)
            elif stream.location.may_be_offline:
                index, derived, offline = self._find_index_or_copy(stream, storage)
            else:
                with_timeout = TimeoutStorage(storage, stream.timeout)
                index, derived = stream.find_index(with_timeout, stream.retries)
        if stream.version is not None:
            raise ConfigError(
                f"version={stream.version!r}: {stream!r} is neither a view nor a table, which have versions"
            )
        if stream.select is not None:
            stream.select.check(index.size, repr(stream))
        index = limit_values(apply_decoders(index, stream.decoders), stream.value_limit)
        if in_place and stream.cache_limit is not None and not index.compressed:
            _LOG.warning(
                "%r: cache_limit=%r is ignored: the data set is read in place, and nothing of it is ever "
                "removed; give remote= and local= to read it through a cache",
                stream,
                stream.cache_limit,
            )
        files = _find_files(stream, storage, index, derived, observer, offline=offline)
        opened = OpenStream(stream, index, files, storage.url_of(INDEX_NAME), stream.select)
        return opened if derived is None else replace(opened, where=opened.shown_url)

    def _find_index_or_copy(
        self, stream: Stream, storage: Storage
    ) -> tuple[Index, Path | None, bool]:
        """Return the result of `find_index`, and whether it is the local copy of an unreachable remote."""
        probe = ProbeStorage(storage, stream.timeout)
        try:
            return *stream.find_index(probe, min(stream.retries, PROBE_RETRIES)), False
        except (NotFound, ConfigError) as error:
            is_missing = NotFound in map(type, (error, error.__cause__))
            copy = self.find_copy(stream, storage) if is_missing else None
            if copy is None:
                raise
            if _lacks_mount_point(stream):
                warn_offline(*copy, stream.location.directory, storage.url, error)
                return *copy, True
            error.args = (f"{error}; {describe_copy(*copy, stream.location.directory)}",)
            raise
        except (StorageError, PluginError) as error:
            if probe.failure is None:  # the local directory failed, not the remote
                raise
            copy = self.find_copy(stream, storage)
            if copy is None:
                raise
            warn_offline(*copy, stream.location.directory, storage.url, error)
            return *copy, True


def _lacks_mount_point(stream: Stream) -> bool:
    """Return whether a data set is in a directory of this machine that is missing, as without its disk."""
    path = local_path(absolute_location(stream.location.parent))
    return path is not None and not path.parent.exists()


def keeps_index(stream: Stream) -> bool:
    """Return whether a copy of the index is kept in the cache directory of a stream."""
    location = stream.location
    return not location.in_place and (location.keeps_shards or stream.local is not None)


def _find_files(
    stream: Stream,
    storage: Storage,
    index: Index,
    derived: Path | None,
    observer: Observer | None,
    *,
    offline: bool,
) -> ShardFiles:
    """Return the files of a stream's shards, and their cache if the access keeps shards."""
    in_place, access = stream.location.in_place, find_access(stream, index)
    source = wrap_storage(storage, index, derived)
    if source is not storage and stream.validate_hash is not None:
        raise ConfigError(
            f"validate_hash={stream.validate_hash!r}: shards of several files have no digest; "
            "leave it out"
        )
    store = None
    if access.keeps_shards:
        store = _open_store(stream, source, index, derived, observer, offline=offline)
    source = source if in_place else TimeoutStorage(source, stream.timeout)
    return ShardFiles(access, source, stream.retries, stream.patience, observer, derived, store)


def _open_store(
    stream: Stream,
    source: Storage,
    index: Index,
    derived: Path | None,
    observer: Observer | None,
    *,
    offline: bool,
) -> ShardStore:
    """Open the cache of a stream's shards, which `source` has."""
    location, in_place = stream.location, stream.location.in_place
    root, unpacked = location.root, None
    if in_place and index.compressed:
        root, unpacked = _unpack_dirs(stream, index, derived)
    limit = stream.cache_limit if unpacked is not None or not in_place else None
    options = CacheOptions(
        retries=stream.retries,
        timeout=stream.timeout,
        patience=stream.patience,
        validate_hash=stream.validate_hash,
        keep_zip=bool(stream.keep_zip),
        cache_limit=None if limit is None else parse_cache_limit(limit, root),
        root=root,
    )
    store = ShardStore(
        index,
        location.directory,
        None if in_place else source,
        options,
        observer,
        derived=derived,
        unpacked=unpacked,
        offline=offline,
    )
    store.begin()
    return store


def _unpack_dirs(stream: Stream, index: Index, derived: Path | None) -> tuple[Path, Path]:
    """Return the cache directory of a compressed data set read in place, and that of its raw shards."""
    if derived is not None:
        return derived.parents[1], derived
    root = source_cache_dir(stream.url)
    written = (stream.directory / INDEX_NAME).stat()
    # A rewritten data set has a different index.json, at least in its modification time.
    version = f"{index.digest} {written.st_size} {written.st_mtime_ns}".encode()
    unpacked = root / f"shards-{blake2s(version, digest_size=8).hexdigest()}"
    _remove_old_versions(unpacked)
    return root, unpacked


def _remove_old_versions(unpacked: Path) -> None:
    """Remove the raw shards of other versions of a data set that no one has opened for a week."""
    with suppress(OSError):  # it does not exist yet, or is another user's
        os.utime(unpacked)
    for path in unpacked.parent.glob("shards-*"):
        with suppress(FileNotFoundError):  # removed by another process
            # Until then, a process that has opened an earlier version may be reading it.
            if path != unpacked and time.time() - path.stat().st_mtime > _MAX_UNUSED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
