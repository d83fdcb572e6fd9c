"""Sources, which open streams."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, cast

from streamplug.errors import (
    AccessDenied,
    NotFound,
    PluginError,
    StorageError,
    Transient,
    prefix_errors,
)
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.storage import public_url
from streamplug.plugin.catalog import EXPRESSION_SOURCE, MANIFESTS
from streamplug.plugin.registry import is_known, make
from streamplug.source.open_stream import OpenStream
from streamplug.transfer.observer import Observer
from streamplug.transfer.retry import call_with_retries

if TYPE_CHECKING:
    from streamplug.stream import Stream


class Source(Plugin):
    """Opens streams: finds the index of their samples, the identity of these, and readers of shards.

    A source may wrap another one, by opening a changed stream.
    """

    @abstractmethod
    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        """Open a stream.

        Args:
            stream: Its `version` is None for the latest version.
            observer: Receives the events of the stream, now and later.

        Raises:
            StreamplugError: If the data or their version do not exist, cannot be read, or are damaged.
        """


def open_stream(stream: Stream, observer: Observer | None) -> OpenStream:
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
    """Return the source that a stream names by its options, which is that of index.json by default.

    Raises:
        PluginError: If it is not installed.
    """
    name = "index"
    if isinstance(stream.select, str):
        name = EXPRESSION_SOURCE
    elif stream.format is not None and is_known("source", stream.format):
        name = stream.format
    with prefix_errors(_shown_option(stream), PluginError):
        return cast("Source", make("source", name))


def _shown_option(stream: Stream) -> str:
    if isinstance(stream.select, str):
        return f"select={public_url(stream.select)!r:.60}"
    return f"format={stream.format!r:.60}"


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
    from streamplug.plugin.discovery import inventory  # only where there is no index.json

    return {**MANIFESTS, **inventory().manifests}


def _exists(stream: Stream, manifest: str) -> bool:
    try:
        return call_with_retries(lambda: stream.storage.exists(manifest), stream.retries)
    except Transient:
        raise
    except StorageError:  # a storage that can only read, or one without the right to list
        return False
