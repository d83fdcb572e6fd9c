"""Opening of streams: their index, their cache directory and the reader of their shards."""

from __future__ import annotations

import logging
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING

from streamplug.cache.identity import claim_directory
from streamplug.cache.limit import parse_cache_limit
from streamplug.cache.offline import open_local_copy, warn_offline
from streamplug.cache.options import CacheOptions
from streamplug.cache.store import ShardStore
from streamplug.cache.user_cache import default_cache_dir, source_cache_dir
from streamplug.display.progress_bar import ProgressBar
from streamplug.errors import ConfigError, NotFound, PluginError, StorageError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Storage
from streamplug.plugin.location import local_path, open_storage
from streamplug.plugin.registry import make
from streamplug.read import apply_decoders, limit_values
from streamplug.scan.file_lists import FileListFoundError
from streamplug.scan.glob import FileSet
from streamplug.scan.index_finder import open_index, read_index
from streamplug.scan.index_import import make_index_importer
from streamplug.scan.multifile_storage import wrap_multifile
from streamplug.scan.scan_cache import ScanCache
from streamplug.source.open_stream import OpenStream
from streamplug.source.source import Source
from streamplug.transfer.observer import Observer, observer_context
from streamplug.transfer.probe import PROBE_RETRIES, ProbeStorage
from streamplug.transfer.range_reader import RangeReader
from streamplug.transfer.timeout_storage import TimeoutStorage

if TYPE_CHECKING:
    from streamplug.stream import Stream

_LOG = logging.getLogger("streamplug")


class IndexSource(Source):
    """``index``: data sets with an index.json."""

    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        """Open a data set; see `Source.open`."""
        return _open_data_set(stream, observer)


def _open_data_set(stream: Stream, observer: Observer | None) -> OpenStream:
    storage, in_place = stream.storage, stream.location.in_place
    if stream.local is None and not in_place:
        default_cache_dir()
    offline = False
    with observer_context(observer, storage.url):
        if in_place:
            index, derived = stream.find_index(storage, stream.retries)
        elif stream.location.may_be_offline:
            index, derived, offline = _find_index_or_copy(stream, storage)
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
    store = _make_store(stream, storage, index, derived, observer, offline=offline)
    where = storage.url_of(INDEX_NAME) if derived is None else storage.url
    return OpenStream(stream, index, store, where, stream.select)


def _make_store(
    stream: Stream,
    storage: Storage,
    index: Index,
    derived: Path | None,
    observer: Observer | None,
    *,
    offline: bool,
) -> ShardStore | RangeReader:
    """Return the cache of a stream's shards, or the reader of their byte ranges."""
    location, in_place = stream.location, stream.location.in_place
    source = wrap_multifile(storage, index, derived)
    if source is not storage and stream.validate_hash is not None:
        raise ConfigError(
            f"validate_hash={stream.validate_hash!r}: shards of several files have no digest; "
            "leave it out"
        )
    if stream.access == "range" or (in_place and source is not storage):
        source = source if in_place else TimeoutStorage(source, stream.timeout)
        return RangeReader(source, stream.retries, observer, derived)
    root, unpacked = location.root, None
    if in_place and index.compressed:
        root, unpacked = _unpack_dirs(stream, index, derived)
    limit = stream.cache_limit if unpacked is not None or not in_place else None
    options = CacheOptions(
        retries=stream.retries,
        timeout=stream.timeout,
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


def find_index(stream: Stream, storage: Storage, retries: int) -> tuple[Index, Path | None]:
    """Return the index of a stream, and the directory of its scan result; see `Stream.find_index`."""
    location = stream.location
    directory, in_place, files = location.directory, location.in_place, location.files
    has_cache = stream.access != "range" or stream.local is not None
    if files is None or files.whole:
        importer = stream.format and make_index_importer(
            make("format", stream.format), storage, retries
        )
        translate = importer or bytes
        try:
            if not has_cache:
                return read_index(storage, retries, translate), None
            index = open_index(
                storage, directory, in_place=in_place, retries=retries, translate=translate
            )
        except NotFound as error:
            if files is None:
                raise
            if isinstance(error, FileListFoundError):
                files = FileSet(files.root, (INDEX_NAME,))
        else:
            return index, None
    base = source_cache_dir(storage.url) if in_place else directory

    def open_other(url: str) -> Storage:
        other = open_storage(url, stream.storage_options)
        return other if in_place else TimeoutStorage(other, stream.timeout)

    with ProgressBar(f"scanning {storage.url}") as progress:
        scan = ScanCache(
            storage,
            local_path(files.root),
            stream.format or "",
            retries,
            open_storage=open_other,
        )
        result = scan.get_index(files, base, progress.update)
    if has_cache and not in_place:
        versions = f"{type(location.storage).__name__} {result.versions}"
        claim_directory(directory, storage.url, result.data, location.selection, versions)
    index = parse_index(result.data, storage.url)
    index.versions = result.versions
    return index, result.folder


def _find_index_or_copy(stream: Stream, storage: Storage) -> tuple[Index, Path | None, bool]:
    """Return the result of `find_index`, and whether it is the local copy of an unreachable remote."""
    location = stream.location
    probe = ProbeStorage(storage, stream.timeout)
    try:
        return *stream.find_index(probe, min(stream.retries, PROBE_RETRIES)), False
    except NotFound:
        raise
    except (StorageError, PluginError) as error:
        if probe.failure is None:  # the local directory failed, not the remote
            raise
        directory, files = location.directory, location.files
        is_listed = files is not None and not files.whole
        copy = open_local_copy(directory, storage.url, location.selection, listed=is_listed)
        if copy is None:
            raise
        warn_offline(*copy, directory, storage.url, error)
        return *copy, True


def _unpack_dirs(stream: Stream, index: Index, derived: Path | None) -> tuple[Path, Path]:
    """Return the cache directory of a compressed data set read in place, and that of its raw shards."""
    if derived is not None:
        return derived.parents[1], derived
    root = source_cache_dir(stream.url)
    written = (stream.directory / INDEX_NAME).stat()
    # A rewritten data set has a different index.json, at least in its modification time.
    version = f"{index.digest} {written.st_size} {written.st_mtime_ns}".encode()
    return root, root / f"shards-{blake2s(version, digest_size=8).hexdigest()}"
