"""Sources, which open streams."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, cast

from streamplug.errors import (
    AccessDenied,
    ConfigError,
    NotFound,
    PluginError,
    StorageError,
    Transient,
    prefix_errors,
)
from streamplug.interfaces import Plugin, public_url, public_urls
from streamplug.plugin import is_known, load_manifests, make
from streamplug.source.open_stream import OpenStream
from streamplug.source.stream_location import StreamLocation
from streamplug.transfer import Observer, call_with_retries

if TYPE_CHECKING:
    from streamplug.stream import Stream


EXPRESSION_SOURCE = "where"
"""Source of streams whose `select` is an expression."""


class Source(Plugin):
    """Opens streams: finds the index of their samples, the identity of these, and readers of shards.

    A source may wrap another one, by opening a changed stream.
    """

    def locate(self, stream: Stream) -> StreamLocation:
        """Return the location of a stream, and of its cache; the default is that of one directory.

        Raises:
            ConfigError: If the stream names other than one directory.
        """
        location = stream.local if stream.remote is None else stream.remote
        if stream.format is not None and isinstance(location, tuple) and len(location) == 1:
            location = location[0]
        if not isinstance(location, str):
            raise ConfigError(
                f"remote={public_urls(location)!r:.200}: a list of files needs a format= whose files are "
                "read without an index.json, such as format='parquet'"
            )
        return StreamLocation.of(stream, location)

    @abstractmethod
    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        """Open a stream.

        Args:
            stream: Its `version` is None for the latest version.
            observer: Receives the events of the stream, now and later.

        Raises:
            StreamplugError: If the data or their version do not exist, cannot be read, or are damaged.
        """


def open_by_source(stream: Stream, observer: Observer | None) -> OpenStream:
    """Open a stream by its source; see `Stream.open`."""
    source = find_source(stream)
    try:
        return source.open(stream, observer)
    except (NotFound, AccessDenied):  # S3 denies missing files, without the right to list
        recognized = recognize_source(stream)
        if recognized is None:
            raise
    return recognized.open(stream, observer)


def find_source(stream: Stream) -> Source:
    """Return the source that opens a stream, if its location does not tell another one.

    Raises:
        PluginError: If it is not installed.
    """
    if isinstance(stream.select, str):
        with prefix_errors(f"select={public_url(stream.select)!r:.60}", PluginError):
            return cast("Source", make("source", EXPRESSION_SOURCE))
    return find_format_source(stream)


def find_format_source(stream: Stream) -> Source:
    """Return the source that the `format` of a stream names, or that its format has; else that of index.json.

    Raises:
        PluginError: If it is not installed.
    """
    name = stream.format
    if name is None:
        return cast("Source", make("source", "index"))
    location = stream.local if stream.remote is None else stream.remote
    first = location if isinstance(location, str) else next(iter(location or ()), "")
    with prefix_errors(public_url(first), PluginError):
        if not is_known("source", name):
            name = make("format", name).source
        return cast("Source", make("source", name))


def recognize_source(stream: Stream) -> Source | None:
    """Return the source whose manifest exists at the location of a stream that names no source.

    Raises:
        PluginError: If it is not installed.
        StorageError: `Transient` if the storage cannot be reached.
    """
    if stream.format is not None or isinstance(stream.select, str):
        return None
    for manifest, name in list_manifests().items():
        with prefix_errors(stream.url, PluginError):
            if _exists(stream, manifest):
                return cast("Source", make("source", name))
    return None


def list_manifests() -> dict[str, str]:
    """Return the source of each file by which a location is recognized, also if it is not installed."""
    from streamplug.plugin import inventory  # only where there is no index.json

    return {**load_manifests(), **inventory().manifests}


def _exists(stream: Stream, manifest: str) -> bool:
    try:
        return call_with_retries(lambda: stream.storage.exists(manifest), stream.retries)
    except Transient:
        raise
    except StorageError:  # a storage that can only read, or one without the right to list
        return False
