"""Data sets of which views have rows: their location, identity and cache."""

from __future__ import annotations

import os.path
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2s
from pathlib import Path
from urllib.parse import quote

import numpy as np
import xxhash
from streamplug_files import glob_prefix

from streamplug.errors import DataError, StorageError, prefix_errors
from streamplug.index import DigestColumns, Index, TextColumn
from streamplug.plugin import is_url, local_path, strip_client
from streamplug.source import OpenStream, StreamLocation
from streamplug.stream import Stream
from streamplug.transfer import Observer
from streamplug_views.manifest import SourceEntry


def source_digest(index: Index, *, all_names: bool = False) -> str:
    """Return the xxh3_128 hex digest of columns, sizes, names and digests of the shards of a data set.

    Args:
        index: Its index.
        all_names: Whether to include the names of files that a scan made, which change with the location and
            the modification times of the data set; earlier versions of this package did.
    """
    digest = xxhash.xxh3_128()
    all_names = all_names or index.versions is None
    if not all_names:
        stored = [index.tables[key] for key in ("zip_data", "raw_data") if key in index.tables]
        for shard in range(len(index)):
            name = next(filter(None, (files.basenames[shard] for files in stored)), "")
            digest.update(f"{name}\n".encode(errors="surrogateescape"))
    for schema in index.schemas:
        columns = [f"{column.name}\0{column.spec}" for column in schema.columns]
        digest.update("\n".join(columns).encode())
    digest.update(np.ascontiguousarray(index.starts, "<i8").data)
    for name, files in sorted(index.tables.items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(files.bytes, "<i8").data)
        if all_names and isinstance(files.basenames, TextColumn):
            digest.update(files.basenames.data.data)
        if isinstance(files.hashes, DigestColumns):
            for algorithm, column in sorted(files.hashes.columns.items()):
                digest.update(algorithm.encode())
                digest.update(column.data.data)
    return digest.hexdigest()


@dataclass(frozen=True, repr=False)
class SourceStream(Stream):
    """A source of a view, as a stream, whose cache is a subdirectory of that of the view."""

    @cached_property
    def location(self) -> StreamLocation:
        plain = super().location
        if plain.in_place or plain.local is None:
            return plain
        identity = "\n".join([plain.storage.url, plain.split or "", *plain.parts])
        data = identity.encode(errors="surrogateescape")
        return replace(plain, subdirectory=f"source-{blake2s(data, digest_size=8).hexdigest()}")


def source_stream(source: SourceEntry, view: Stream, base_url: str) -> Stream:
    """Return the stream of a source, with the options of the view's stream.

    Args:
        source: The source.
        view: Stream of the view.
        base_url: Location of the view, to which relative locations are relative.
    """
    url = resolve_url(source.url, base_url, source.format)
    return SourceStream(
        remote=url,
        split=source.split,
        format=source.format,
        version=source.version,
        local=None if view.location.in_place else view.local,
        storage_options=view.storage_options if same_scheme(url, base_url) else None,
        **{name: getattr(view, name) for name in _INHERITED},
    )


_INHERITED = (
    "access",
    "cache_limit",
    "download_patience",
    "download_retry",
    "download_timeout",
    "keep_zip",
    "max_value_bytes",
    "validate_hash",
)


def _absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


def same_scheme(url: str, other: str) -> bool:
    """Return whether two locations have storages of the same kind, so that options of one fit the other."""
    return _scheme(url) == _scheme(other)


def _scheme(url: str) -> str:
    return strip_client(url).partition("://")[0] if is_url(url) else ""


def open_source(
    source: SourceEntry, view: Stream, base_url: str, observer: Observer | None, where: str
) -> OpenStream:
    """Open a source and check that it did not change.

    Raises:
        DataError: If it is not the data set that the view was made of.
        StorageError: If it cannot be read, or does not exist.
    """
    with prefix_errors(f"{where}: its source", StorageError):
        opened = source_stream(source, view, base_url).open(observer)
    if opened.files is None:
        raise DataError(
            f"{where}: its source {opened.stream.shown_url} is a view; sources must be data sets"
        )
    found = opened.index.size
    if found != source.samples or not any(
        source.digest == source_digest(opened.index, all_names=flag) for flag in (False, True)
    ):
        size = (
            f"it has {found:,} samples, and had {source.samples:,}"
            if found != source.samples
            else "its columns or shards differ"
        )
        raise DataError(
            f"{where}: its source {opened.stream.shown_url} changed since the view was written: {size}; make "
            "the view again, or restore the data set"
        )
    return opened


def relative_url(url: str, base_url: str) -> str:
    """Return a location relative to another where that is possible, or else absolute.

    >>> relative_url("s3://bucket/crawl", "s3://bucket/views/clean")
    '../../crawl'
    """
    if is_url(url) != is_url(base_url):
        return url
    if not is_url(url):
        return _relative_path(url, base_url)
    root, own = strip_client(url).partition("://")[::2]
    base_root, base_path = strip_client(base_url).partition("://")[::2]
    if root != base_root or own.partition("/")[0] != base_path.partition("/")[0]:
        return url
    return _relative_path(own, base_path) if root == "file" else os.path.relpath(own, base_path)


def _relative_path(path: str, base: str) -> str:
    """Return a path relative to the directory that `base` is or links to, as ``..`` leads there."""
    lexical = os.path.relpath(_absolute(path), _absolute(base))
    real, real_base = os.path.realpath(_absolute(path)), os.path.realpath(_absolute(base))
    is_same = os.path.realpath(f"{real_base}/{lexical}") == real
    # Links of the path are kept where possible: they may be moved with the base.
    return lexical if is_same else os.path.relpath(real, real_base)


def resolve_url(url: str, base_url: str, format_: str | None = None) -> str:
    """Return the location that `relative_url` made relative.

    Args:
        url: The relative or absolute location of a source.
        base_url: Location of the view.
        format_: Format of a source without index.json, which may be a file or a pattern; else it is a
            directory.

    >>> resolve_url("../../crawl", "s3://bucket/views/clean")
    's3://bucket/crawl'
    """
    if is_url(url) or Path(url).is_absolute():
        return url
    base_path = local_path(base_url)
    if base_path is not None:
        return _join_path(str(base_path.absolute()), url)
    scheme, _, path = base_url.partition("://")
    query = ""
    if strip_client(base_url).startswith(("http://", "https://")):
        path, mark, query = path.partition("?")
        query = mark + query
        # Views are written where paths are literal; of a format, they may be patterns.
        url = quote(url, safe="/" if format_ is None else "/*?[]{}")
    joined = _join_lexically(path, url)
    is_same_host = joined.partition("/")[0] == path.partition("/")[0]
    return f"{scheme}://{joined}{query if is_same_host else ''}"


def _join_path(base: str, path: str) -> str:
    joined = _join_lexically(os.path.realpath(base), path)
    # Earlier versions of this package took ".." for the directory that has the link.
    lexical = _join_lexically(base, path)
    return lexical if not _exists(joined) and _exists(lexical) else joined


def _join_lexically(base: str, path: str) -> str:
    return os.path.normpath(f"{base}/{path}")


def _exists(path: str) -> bool:
    """Return whether a file exists, or for a glob its directory."""
    prefix = glob_prefix(path)
    found = path if prefix == path else Path(f"{prefix}*").parent
    return os.path.exists(found)  # noqa: PTH110 - Path.exists raises for a name that is too long
