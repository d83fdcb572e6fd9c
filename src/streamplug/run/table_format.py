"""Table formats: locations whose manifest names rows of data sets elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, cast

from streamplug.errors import PluginError, StorageError, Transient, prefix_errors
from streamplug.interfaces.plugin import Plugin
from streamplug.interfaces.storage import public_url
from streamplug.plugin.catalog import EXPRESSION_FORMAT, MANIFESTS
from streamplug.plugin.registry import is_known, make
from streamplug.run.open_stream import OpenStream
from streamplug.transfer.observer import Observer
from streamplug.transfer.retry import call_with_retries

if TYPE_CHECKING:
    from streamplug.stream import Stream


class TableFormat(Plugin):
    """A format of locations that have no shards, but a manifest that names rows of data sets elsewhere."""

    @abstractmethod
    def open(self, stream: Stream, observer: Observer | None) -> OpenStream:
        """Open a stream whose location is a table.

        Args:
            stream: Its `version` is None for the latest version.
            observer: Receives the events of the stream.

        Raises:
            StreamplugError: If the table or its version does not exist, or is damaged.
        """


def find_table_format(stream: Stream) -> TableFormat | None:
    """Return the table format that a stream names; without `format`, the one whose manifest exists.

    A stream with an expression as `select` is opened by the one that evaluates expressions.

    Raises:
        PluginError: If the table format is not installed.
        StorageError: `Transient` if the storage cannot be reached.
    """
    if isinstance(stream.select, str):
        with prefix_errors(f"select={public_url(stream.select)!r:.60}", PluginError):
            return cast("TableFormat", make("table", EXPRESSION_FORMAT))
    if stream.format is not None:
        return make("table", stream.format) if is_known("table", stream.format) else None
    for manifest, name in MANIFESTS.items():
        with prefix_errors(stream.url, PluginError):
            if _exists(stream, manifest):
                return cast("TableFormat", make("table", name))
    return None


def _exists(stream: Stream, manifest: str) -> bool:
    try:
        return call_with_retries(lambda: stream.storage.exists(manifest), stream.retries)
    except Transient:
        raise
    except StorageError:  # a storage that can only read, or one without the right to list
        return False
