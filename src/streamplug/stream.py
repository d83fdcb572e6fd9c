"""A Stream: one data set, local or remote, as a part of a StreamingDataset."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2s
from pathlib import Path
from typing import Any

from streamplug.cache.identity import claim_directory
from streamplug.cache.limit import parse_cache_limit
from streamplug.cache.offline import has_index, open_local_copy, selection_key, warn_offline
from streamplug.cache.options import CacheOptions
from streamplug.cache.store import ShardStore
from streamplug.cache.user_cache import default_cache_dir, source_cache_dir
from streamplug.config import Configurable, check_flags, check_seconds, whole_number
from streamplug.display.object_summary import StreamRepr
from streamplug.errors import ConfigError, NotFound, PluginError, StorageError
from streamplug.index import INDEX_NAME, Index, parse_index
from streamplug.interfaces import Decoder, Format, Storage
from streamplug.interfaces.storage import public_url
from streamplug.plan import Weight
from streamplug.plugin.location import join, local_path, open_storage
from streamplug.plugin.registry import make, needed_by
from streamplug.read import apply_decoders
from streamplug.scan.file_lists import FileListFoundError
from streamplug.scan.glob import FileSet, parse_locations
from streamplug.scan.index_finder import open_index, read_index
from streamplug.scan.index_import import make_index_importer
from streamplug.scan.listing import is_data_file
from streamplug.scan.multifile_storage import wrap_multifile
from streamplug.scan.progress import ScanProgress
from streamplug.scan.scan_cache import ScanCache
from streamplug.session.open_stream import OpenStream, read_all
from streamplug.session.stream_checks import check_stream_values
from streamplug.transfer.observer import Observer, observer_context
from streamplug.transfer.probe import PROBE_RETRIES, ProbeStorage, UnavailableStorage
from streamplug.transfer.range_reader import RangeReader
from streamplug.transfer.timeout import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage

__all__ = ["Stream", "read_all"]

_LOG = logging.getLogger("streamplug")


@dataclass(frozen=True, repr=False)
class Stream(StreamRepr, Configurable):
    """Location of one data set, and the cache of its shards.

    Attributes:
        remote: URL or path of the data set; None if `local` is the data set itself. With a `format`, it may
            also be a pattern of files, with ``*``, ``**`` and ``{…}``, or a list of files and patterns. A
            file that is listed several times is read as often, and downloaded once.
        local: Cache directory for shards. If it is None or equal to `remote`, a remote that is a local path
            is read in place; any other remote is cached in the directory for temporary files if it is None.
        split: Sub-directory of both.
        proportion: Share of the epoch relative to the other streams; give it for all streams or none.
        repeat: Number of times that an epoch reads each sample; 1.5 reads half of them twice.
        choose: Number of samples that an epoch reads.
        download_retry: Number of retries of a failed download.
        download_timeout: Stall timeout of downloads in seconds. A range request, as with range access, makes
            progress only when it completes.
        validate_hash: Hash algorithm of the checksums to verify, for downloads and, once in each process, for
            cached files. None verifies downloads with a fast one of those in the index.
        keep_zip: Whether to keep compressed files beside the raw ones.
        cache_limit: Size limit of the shards in `local` with LRU eviction, over all processes that use it and
            all splits: bytes, text such as ``"10gb"``, or ``"50%"`` of its disk; None is unlimited. For a
            compressed data set that is read in place, limit of its decompressed shards in the user's cache
            directory.
        access: ``"shard"`` downloads whole shards; ``"range"`` reads only the bytes of requested samples,
            which needs uncompressed shards and caches nothing but the index, in `local` if that is given.
        storage_options: Options of the remote's storage, such as credentials; not part of the repr.
        decoders: Decoders by column name, which replace the columns' own encodings.
        format: Name of the file format, such as ``"webdataset"``, if there is no index.json. The files are
            scanned once, and the result is cached.
    """

    remote: str | Sequence[str] | None = None
    local: str | None = None
    split: str | None = None
    proportion: float | None = None
    repeat: float | None = None
    choose: float | None = None
    download_retry: int | None = None
    download_timeout: float | None = None
    validate_hash: str | None = None
    keep_zip: bool | None = None
    cache_limit: float | str | None = None
    access: str | None = None
    storage_options: Mapping[str, Any] | None = None
    decoders: Mapping[str, Decoder] | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.remote is None and self.local is None:
            raise ConfigError("a stream needs remote=, local= or both")
        for name in ("remote", "local", "split"):
            value = getattr(self, name)
            if name == "remote" and isinstance(value, (list, tuple)):
                object.__setattr__(self, name, tuple(map(str, value)))
            elif value is not None and not isinstance(value, str):
                object.__setattr__(self, name, str(value))
            elif value == "" and name != "split":
                raise ConfigError(
                    f"{name}='' names no place; leave it out, or pass '.' for this one"
                )
        if self.format is not None:  # otherwise the data set may set a format
            _ = self._files
        _ = self.weight  # raises for invalid values
        whole_number("download_retry", self.download_retry, 0)
        check_seconds("download_timeout", self.download_timeout)
        check_flags(keep_zip=self.keep_zip)
        if self.cache_limit is not None:
            parse_cache_limit(self.cache_limit, self._root())
        self._check_access()
        check_stream_values(self.validate_hash, self.storage_options, self.decoders)

    def _check_access(self) -> None:
        if self.access not in (None, "shard", "range"):
            raise ConfigError(f"access={self.access!r}: expected 'shard' or 'range'")
        if self.access == "range" and self.validate_hash is not None:
            raise ConfigError(
                f"validate_hash={self.validate_hash!r} with access='range': parts of a file have no "
                "digest; leave it out, or use access='shard'"
            )
        if self.access == "range" and (self.cache_limit is not None or self.keep_zip):
            raise ConfigError(
                "cache_limit= and keep_zip= with access='range', which keeps no shards: leave them out, or "
                "give them to the streams that have access='shard'"
            )

    @property
    def url(self) -> str:
        """URL of the data set, without credentials."""
        return self.storage.url

    @property
    def weight(self) -> Weight:
        """Weight of this stream in an epoch."""
        return Weight(self.proportion, self.repeat, self.choose)

    def with_defaults(self, **defaults: Any) -> Stream:
        """Return this stream with defaults for the options that are None; an empty split counts as None."""
        given = {name: getattr(self, name) for name in defaults}
        missing = [name for name, value in given.items() if value is None]
        if given.get("split") == "":
            missing.append("split")
        return replace(self, **{name: defaults[name] for name in missing})

    def open(self, observer: Observer | None = None) -> OpenStream:
        """Read the index of this stream, and open its cache directory.

        Args:
            observer: Receives the events of this stream, now and later.

        Raises:
            StorageError: If the index cannot be read.
            InvalidIndexError: If the index is invalid.
            CacheConflictError: If the cache directory belongs to another data set.
        """
        storage, directory, in_place = self.storage, self.directory, self._in_place()
        retries = self.download_retry or 0
        if self.local is None and not in_place:
            default_cache_dir()
        timeout = self.download_timeout or DOWNLOAD_TIMEOUT_SECONDS
        offline = False
        with observer_context(observer, storage.url):
            if in_place:
                index, derived = self.find_index(storage, retries)
            elif self._may_be_offline():
                index, derived, offline = self._find_index_or_copy(storage, retries, timeout)
            else:
                index, derived = self.find_index(TimeoutStorage(storage, timeout), retries)
        index = apply_decoders(index, self.decoders)
        if in_place and self.cache_limit is not None and not index.compressed:
            _LOG.warning(
                "%r: cache_limit=%r is ignored: the data set is read in place, and nothing of it is ever "
                "removed; give remote= and local= to read it through a cache",
                self,
                self.cache_limit,
            )
        where = storage.url_of(INDEX_NAME) if derived is None else storage.url
        source = wrap_multifile(storage, index, derived)
        if source is not storage and self.validate_hash is not None:
            raise ConfigError(
                f"validate_hash={self.validate_hash!r}: shards that are made of files have no digest; "
                "leave it out"
            )
        if self.access == "range" or (in_place and source is not storage):
            asked = source if in_place else TimeoutStorage(source, timeout)
            return OpenStream(self, index, RangeReader(asked, retries, observer, derived), where)
        root, unpacked = self._root(), None
        if in_place and index.compressed:
            root, unpacked = self._unpack_dirs(index, derived)
        limit = self.cache_limit if unpacked is not None or not in_place else None
        options = CacheOptions(
            retries=retries,
            timeout=timeout,
            validate_hash=self.validate_hash,
            keep_zip=bool(self.keep_zip),
            cache_limit=None if limit is None else parse_cache_limit(limit, root),
            root=root,
        )
        remote = None if in_place else source
        store = ShardStore(
            index,
            directory,
            remote,
            options,
            observer,
            derived=derived,
            unpacked=unpacked,
            offline=offline,
        )
        store.begin()
        return OpenStream(self, index, store, where)

    def _may_be_offline(self) -> bool:
        return self.access != "range" and not self._in_place() and has_index(self.directory)

    def _find_index_or_copy(
        self, storage: Storage, retries: int, timeout: float
    ) -> tuple[Index, Path | None, bool]:
        """Return the result of `find_index`, and whether it is the local copy of an unreachable remote."""
        asked = ProbeStorage(storage, timeout)
        try:
            return *self.find_index(asked, min(retries, PROBE_RETRIES)), False
        except NotFound:
            raise
        except (StorageError, PluginError) as error:
            if asked.failure is None:  # the local directory failed, not the remote
                raise
            directory, files = self.directory, self._files
            copy = open_local_copy(
                directory,
                storage.url,
                self._selection(),
                listed=files is not None and not files.whole,
            )
            if copy is None:
                raise
            warn_offline(copy, directory, storage.url, error)
            return copy.index, copy.derived, True

    def _selection(self) -> str | None:
        return None if self._files is None else selection_key(self.format, self._files.parts)

    def find_index(self, asked: Storage, retries: int) -> tuple[Index, Path | None]:
        """Return the index, and the directory of the scan result if there is no index.json.

        A subclass may override this, to cache the index or to replace encodings. `asked` is the storage of
        the data set; transient errors are retried `retries` times.

        Raises:
            StreamplugError: If there is no index, or it cannot be read.
        """
        directory, in_place = self.directory, self._in_place()
        kept = self.access != "range" or self.local is not None
        files = self._files
        if files is None or files.whole:
            try:
                options = {"retries": retries, **self._foreign(asked, retries)}
                if not kept:
                    return read_index(asked, **options), None
                return open_index(asked, directory, in_place=in_place, **options), None
            except NotFound as error:
                if files is None:
                    raise
                if isinstance(error, FileListFoundError):
                    files = FileSet(files.root, (INDEX_NAME,))
        near = local_path(files.root)
        base = source_cache_dir(asked.url) if in_place else directory
        with ScanProgress(asked.url) as progress:
            deriver = ScanCache(asked, near, self.format or "", retries)
            derived = deriver.get_index(files, base, progress.update)
        if kept and not in_place:
            claim_directory(directory, asked.url, derived.data, self._selection())
        return parse_index(derived.data, asked.url), derived.folder

    def _foreign(self, asked: Storage, retries: int) -> dict[str, Any]:
        known = (
            make_index_importer(make("format", self.format), asked, retries)
            if self.format
            else None
        )
        return {"translate": known} if known else {}

    @cached_property
    def _files(self) -> FileSet | None:
        """Files of the data set if there may be no index.json; None if there must be one."""
        location = self.local if self.remote is None else self.remote
        if self.format is None:
            if not isinstance(location, str):
                raise ConfigError(f"remote={location!r:.200}: a list of files needs a format=")
            return None
        first = location if isinstance(location, str) else next(iter(location or ()), "")
        with needed_by(public_url(first)):
            format_: Format = make("format", self.format)
        files = parse_locations(location or "", lambda name: is_data_file(name, format_))
        if self.split is None:
            return files
        if not files.whole:
            raise ConfigError(
                f"split={self.split!r} with remote={location!r:.200}: a split is of a directory; name it "
                "in remote=, and give split= to other streams only"
            )
        return FileSet(join(files.root, self.split), files.parts)

    @property
    def cache(self) -> tuple[Path, int | None] | None:
        """Cache directory and its limit in bytes; None if the data set is read in place."""
        if self._in_place():
            return None
        root, limit = self._root(), self.cache_limit
        return root, None if limit is None else parse_cache_limit(limit, root)

    @property
    def storage(self) -> Storage:
        """Storage of the data set."""
        root = join(self._location, self.split or "") if self._files is None else self._files.root
        try:
            return open_storage(root, self.storage_options)
        except PluginError as error:
            if self.local is None or not self._may_be_offline():
                raise
            return UnavailableStorage(root, error)

    @property
    def _location(self) -> str:
        if self._files is not None and not self._files.whole:
            return self._files.root
        return str(self.remote if self.remote is not None else self.local)

    def _in_place(self) -> bool:
        if self.remote is None:
            return True
        near = local_path(self._location)
        if near is None or self.local is None:
            return near is not None
        # With `local` equal to `remote` it is read in place, as in mosaicml-streaming.
        kept = local_path(self.local)
        return kept is not None and kept.resolve() == near.resolve()

    @property
    def directory(self) -> Path:
        """Directory of the split's shards."""
        own = self.local is not None or self._in_place()
        return self._root() / (self.split or "") if own else self._root()

    def _unpack_dirs(self, index: Index, derived: Path | None) -> tuple[Path, Path]:
        """Return the cache directory of a compressed data set read in place, and that of its raw shards."""
        if derived is not None:
            return derived.parents[1], derived
        root = source_cache_dir(self.url)
        written = (self.directory / INDEX_NAME).stat()
        # A rewritten data set has a different index.json, at least in its modification time.
        version = f"{index.digest} {written.st_size} {written.st_mtime_ns}".encode()
        return root, root / f"shards-{blake2s(version, digest_size=8).hexdigest()}"

    def _root(self) -> Path:
        path = local_path(self._location) if self._in_place() else None
        if path is None and self.local is not None:
            path = local_path(self.local)
            if path is None:
                raise ConfigError(f"local={self.local!r} must be a path on this machine")
        if path is None:
            parts = () if self._files is None or self._files.whole else self._files.parts
            place = "\n".join([self.storage.url, *parts])
            name = blake2s(place.encode(), digest_size=16).hexdigest()
            return default_cache_dir(make=False) / name
        return path
