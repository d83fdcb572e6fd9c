"""A Stream: one data set, local or remote, as a part of a StreamingDataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, cast

from streamplug.cache import parse_cache_limit
from streamplug.config import (
    Configurable,
    check_flags,
    check_seconds,
    parse_bytes,
    parse_seconds,
    suggest_keywords,
    whole_number,
)
from streamplug.display import ObjectSummary, SummaryRepr
from streamplug.errors import ConfigError, StreamplugError
from streamplug.index import Index, hash_names
from streamplug.interfaces import Decoder, Storage, public_url
from streamplug.plan import Weight, parse_selection
from streamplug.plugin import is_url
from streamplug.source import (
    IndexSource,
    OpenStream,
    StreamLocation,
    find_format_source,
    make_access,
    open_by_source,
)
from streamplug.transfer import (
    DOWNLOAD_PATIENCE_SECONDS,
    DOWNLOAD_TIMEOUT_SECONDS,
    Observer,
    Patience,
)

DOWNLOAD_RETRIES = 2


@suggest_keywords
@dataclass(frozen=True, repr=False)
class Stream(SummaryRepr, Configurable):
    """Location of one data set, and the cache of its shards.

    Attributes:
        remote: URL or path of the data set; None if `local` is the data set itself. With a `format`, it may
            also be a pattern of files, with ``*``, ``**`` and ``{…}``, or a list of files and patterns. A
            file that is listed several times is read as often, and downloaded once.
        local: Directory of the data set itself, read in place, if there is no `remote`; otherwise the cache
            directory for its shards. If it is None or equal to `remote`, a remote that is a local path
            is read in place; any other remote is cached in ``STREAMPLUG_CACHE_DIR``, else in the directory
            for temporary files, if it is None.
        split: Sub-directory of both, a relative path without ``..``.
        proportion: Share of the epoch relative to the other streams; give it for all streams or none.
        repeat: Number of times that an epoch reads each sample; 1.5 reads half of them twice.
        choose: Number of samples that an epoch reads.
        download_retry: Number of retries of a failed download; None is that of the data set, else 2.
        download_timeout: Stall timeout of downloads in seconds; None is that of the data set, else 60. A
            range request, as with range access, makes progress only when it completes.
        download_patience: Time for which reading waits for a storage that is away, beyond `download_retry`:
            seconds, or text such as ``"10m"``; 0 is none, None is that of the data set, else 10 minutes.
        validate_hash: Hash algorithm of the checksums to verify, for downloads and, once in each process, for
            cached files. None verifies downloads with a fast one of those in the index. For
            ``access="shard"`` only, as parts of files have no checksums.
        keep_zip: Whether to keep compressed files beside the raw ones.
        cache_limit: Size limit of the shards in `local` with LRU eviction, over all processes that use it and
            all splits: bytes, text such as ``"10gb"``, or ``"50%"`` of its disk; None is unlimited. For a
            compressed data set that is read in place, limit of its decompressed shards in the user's cache
            directory.
        access: ``"shard"`` downloads whole shards. The others need streamplug-ranges: ``"range"`` reads only
            the bytes of requested samples, or of Parquet files the columns of their row groups, which needs
            uncompressed shards and caches nothing but the index, in `local` if that is given; ``"auto"``
            reads those shards by ranges of which so few rows are selected, or so few columns, that it
            transfers less.
        storage_options: Options of the remote's storage, such as credentials; not part of the repr.
        decoders: Decoders by column name, which replace the columns' own encodings.
        max_value_bytes: Maximum bytes of a value that is decompressed or otherwise becomes larger than it is
            stored: a number, or text such as ``"2gb"``; None is 512 MiB. A value beyond it is a DecodeError.
        format: Name of the file format, such as ``"webdataset"``, if there is no index.json. The files are
            scanned once, and the result is cached.
        select: Rows to read, renumbered from 0 in the order of the data set: a boolean mask with a value for
            each row, distinct row numbers, or a `range`; None for all. Shards without a selected row are not
            read. Text is an expression of columns, such as ``"score > 0.5"``, or the location of a ``.npy``
            file with a mask or row numbers; both need streamplug-views.
        version: Version of a view or a table, or its tag; None for the latest.
    """

    remote: str | Sequence[str] | None = None
    local: str | None = None
    split: str | None = None
    proportion: float | None = None
    repeat: float | None = None
    choose: float | None = None
    download_retry: int | None = None
    download_timeout: float | None = None
    download_patience: float | str | None = None
    validate_hash: str | None = None
    keep_zip: bool | None = None
    cache_limit: float | str | None = None
    access: str | None = None
    storage_options: Mapping[str, Any] | None = None
    decoders: Mapping[str, Decoder] | None = None
    max_value_bytes: float | str | None = None
    format: str | None = None
    select: Any = None
    version: int | str | None = None

    def __post_init__(self) -> None:
        for name in ("remote", "local", "split"):
            value = getattr(self, name)
            if name == "remote" and isinstance(value, (list, tuple)) and value:
                object.__setattr__(self, name, tuple(_path_text(name, item) for item in value))
            elif value is not None and not isinstance(value, str):
                object.__setattr__(self, name, _path_text(name, value))
        if self.select is not None and not isinstance(self.select, str):
            object.__setattr__(self, "select", parse_selection(self.select))
        self.validate()

    def validate(self) -> None:
        """Raise `ConfigError` for an invalid option; opens nothing."""
        if self.remote is None and self.local is None:
            raise ConfigError("a stream needs remote=, local= or both")
        for name in ("remote", "local"):
            if getattr(self, name) == "":
                raise ConfigError(
                    f"{name}='' names no place; leave it out, or pass '.' for this one"
                )
        _check_split(self.split)
        Weight(self.proportion, self.repeat, self.choose)
        if not isinstance(self.version, str):
            whole_number("version", self.version, 0)
        whole_number("download_retry", self.download_retry, 0)
        check_seconds("download_timeout", self.download_timeout)
        if self.download_patience is not None:
            parse_seconds(self.download_patience, "download_patience")
        check_flags(keep_zip=self.keep_zip)
        if not self._lacks_format:  # otherwise the data set may set a format
            location = self.location
            if self.cache_limit is not None:
                parse_cache_limit(self.cache_limit, location.root)
        if self.max_value_bytes is not None:
            parse_bytes(self.max_value_bytes, "max_value_bytes")
        self._check_access()
        self._check_mappings()

    def _check_access(self) -> None:
        if not isinstance(self.validate_hash, (str, NoneType)):
            raise ConfigError(
                f"validate_hash={self.validate_hash!r:.60}: expected the name of one hash, such as 'sha1', "
                "or None for none"
            )
        if self.validate_hash not in (None, *hash_names()):
            raise ConfigError(
                f"validate_hash={self.validate_hash!r:.60}: unknown hash; available: "
                f"{', '.join(hash_names())}"
            )
        access = make_access(self.access)
        if not access.keeps_shards and (self.cache_limit is not None or self.keep_zip):
            raise ConfigError(
                f"cache_limit= and keep_zip= with access={self.access!r}, which keeps no shards: leave them "
                "out, or give them to the streams that have access='shard'"
            )
        access.check(self)

    def _check_mappings(self) -> None:
        options: Any = self.storage_options or {}
        decoders: Any = self.decoders or {}
        if not isinstance(options, Mapping):
            raise ConfigError(  # without its value, which may be secret
                "storage_options: expected a mapping of names to values, got "
                f"{type(options).__name__}"
            )
        if not isinstance(decoders, Mapping):
            raise ConfigError(
                f"decoders={decoders!r:.60}: expected a decoder by name of each column, in a dict"
            )
        for column, decoder in decoders.items():
            if not isinstance(column, str):
                raise ConfigError(f"decoders={{{column!r:.60}: …}}: expected the name of a column")
            if decoder is not None and not callable(decoder):
                raise ConfigError(
                    f"decoders={{{column!r}: …}}: expected a decoder, got {type(decoder).__name__}"
                )

    @property
    def _lacks_format(self) -> bool:
        """Whether this is a list of files, and the data set has to give their format."""
        return self.format is None and isinstance(self.remote, tuple)

    @property
    def url(self) -> str:
        """URL of the data set, without credentials."""
        return self.storage.url

    @property
    def weight(self) -> Weight:
        """Weight of this stream in an epoch."""
        return Weight(self.proportion, self.repeat, self.choose)

    @property
    def retries(self) -> int:
        """Number of retries of a failed download."""
        return DOWNLOAD_RETRIES if self.download_retry is None else self.download_retry

    @property
    def timeout(self) -> float:
        """Stall timeout of downloads in seconds."""
        return self.download_timeout or DOWNLOAD_TIMEOUT_SECONDS

    @property
    def patience(self) -> Patience:
        """How long reading waits for the storage while it is away."""
        seconds = self.download_patience
        if seconds is None:
            return Patience.of(self.url, DOWNLOAD_PATIENCE_SECONDS)
        return Patience.of(self.url, parse_seconds(seconds, "download_patience"))

    @property
    def value_limit(self) -> int | None:
        """Maximum bytes of a decoded value; None for the default."""
        size = self.max_value_bytes
        return None if size is None else parse_bytes(size, "max_value_bytes")

    @cached_property
    def location(self) -> StreamLocation:
        """Location of the data set and of its cache."""
        return find_format_source(self).locate(self)

    @property
    def storage(self) -> Storage:
        """Storage of the data set."""
        return self.location.storage

    @property
    def directory(self) -> Path:
        """Directory of the split's shards."""
        return self.location.directory

    @property
    def cache(self) -> tuple[Path, int | None] | None:
        """Cache directory and its limit in bytes; None if the data set is read in place."""
        if self.location.in_place:
            return None
        root, limit = self.location.root, self.cache_limit
        return root, None if limit is None else parse_cache_limit(limit, root)

    def with_defaults(self, **defaults: Any) -> Stream:
        """Return this stream with defaults for the options that are None; an empty split counts as None."""
        missing = [name for name in defaults if getattr(self, name) is None]
        if "split" in defaults and self.split == "":
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
        return open_by_source(self, observer)

    def find_index(self, storage: Storage, retries: int) -> tuple[Index, Path | None]:
        """Return the index, and the directory of the scan result if there is no index.json.

        A subclass may override this, to cache the index or to replace encodings. `storage` is that of the
        data set; transient errors are retried `retries` times.

        Raises:
            StreamplugError: If there is no index, or it cannot be read.
        """
        source = cast("IndexSource", find_format_source(self))
        return source.find_index(self, storage, retries)

    def __repr__(self) -> str:
        try:
            return f"Stream({self.url!r}, local={str(self.directory)!r})"
        except StreamplugError:  # no plugin supports its location
            return f"Stream({self.shown_url!r})"

    @property
    def shown_url(self) -> str:
        """Location of the data set, without credentials."""
        if self._lacks_format:
            return ", ".join(map(public_url, self.remote or ()))
        try:
            return self.url
        except StreamplugError:
            return public_url(self.location.parent)

    @property
    def shown_share(self) -> str:
        """Weight of the stream in an epoch, in words."""
        return ", ".join(f"{name} {value}" for name, value in self.weight.options.items()) or "all"

    @property
    def shown_cache(self) -> str:
        """Cache directory of the stream, in words."""
        if not make_access(self.access).keeps_shards:
            return f"nowhere: read by access={self.access!r}"
        try:
            cache = self.cache
        except StreamplugError:
            return "not known"
        if cache is None:
            return "read in place"
        limit = "" if self.cache_limit is None else f", at most {self.cache_limit}"
        return f"{cache[0]}{limit}"

    def object_summary(self) -> ObjectSummary:
        """Return a summary of the options."""
        names = ("split", "format", "version", "access", "validate_hash")
        options = [(n, str(getattr(self, n))) for n in names if getattr(self, n) is not None]
        if self.select is not None:
            rows = self.select
            if not isinstance(rows, str):
                rows = f"{len(rows):,} selected"
            options.append(("rows", public_url(rows) if is_url(rows) else rows))
        facts = [("data set", self.shown_url), ("share", self.shown_share), *options]
        return ObjectSummary("Stream", [*facts, ("kept in", self.shown_cache)])


def complete_streams(streams: Sequence[Stream], **defaults: Any) -> list[Stream]:
    """Return streams with the data set's values for the options that they leave as None."""
    unchecked: Any = streams
    given = list(unchecked) if isinstance(unchecked, Iterable) else [unchecked]
    if isinstance(streams, Stream) or not all(isinstance(stream, Stream) for stream in given):
        kinds = ", ".join(sorted({type(stream).__name__ for stream in given}))
        raise ConfigError(
            f"streams= takes a list of Stream objects, got {kinds}; from_config creates them from mappings "
            "in the config, not from arguments"
        )
    if not given:
        raise ConfigError("streams= is empty: give at least one Stream")
    complete = [stream.with_defaults(**defaults) for stream in given]
    limits: dict[Path, int | None] = {}
    for stream in complete:
        if stream.cache is not None:
            root, limit = stream.cache
            if limits.setdefault(root.resolve(), limit) != limit:
                raise ConfigError(
                    f"{stream!r}: cache_limit={stream.cache_limit!r}, but another stream says "
                    f"{limits[root.resolve()]} for {root}; streams that share a directory share its limit"
                )
    return complete


def _path_text(name: str, value: Any) -> str:
    """Return a URL or path as text."""
    if not isinstance(value, (str, PathLike)):
        raise ConfigError(f"{name}={value!r:.60}: expected a path or a URL, as text or a Path")
    return str(value)


def _check_split(split: str | None) -> None:
    """Raise `ConfigError` for a split that leads out of the data set and its cache."""
    path = Path(split or "")
    if path.anchor or ".." in path.parts:
        raise ConfigError(
            f"split={split!r}: must be a path below remote= and local=, such as 'train', without '..'"
        )
