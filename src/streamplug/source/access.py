"""Ways to read the shards of a stream, by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from streamplug.cache import ShardStore
from streamplug.index import Index
from streamplug.interfaces import Plugin, Storage
from streamplug.plugin import make
from streamplug.read import OpenShards, StreamShards
from streamplug.transfer import Observer, Patience

if TYPE_CHECKING:
    from streamplug.source.open_stream import OpenStream
    from streamplug.stream import Stream


class Access(Plugin):
    """A way to read the shards of a stream, named by `access`.

    Instances pickle.

    Attributes:
        keeps_shards: Whether shards are kept in the cache directory, whose options the stream may then have.
    """

    keeps_shards: ClassVar[bool] = True

    def check(self, stream: Stream) -> None:
        """Validate the options of a stream before any data is read; the default accepts all.

        Raises:
            ConfigError: If shards cannot be read in this way with them.
        """

    @abstractmethod
    def open_shards(self, stream: OpenStream, columns: Sequence[str] | None) -> StreamShards:
        """Return a reader of the shards of an opened stream.

        Args:
            stream: Its `selection` tells which rows will be read; `shard_files` are the files to read.
            columns: Columns to read; None for all.

        Raises:
            ConfigError: If its shards cannot be read in this way.
        """


class ShardAccess(Access):
    """``shard``: each shard is downloaded as a whole, and kept in the cache."""

    def open_shards(  # noqa: D102 - see `Access`
        self, stream: OpenStream, columns: Sequence[str] | None
    ) -> StreamShards:
        return OpenShards(stream.index, stream.store, columns)


@dataclass(frozen=True)
class ShardFiles:
    """The files of the shards of a stream.

    Attributes:
        access: How they are read.
        storage: Their storage, with the stall timeout of the stream.
        retries: Number of retries of transient errors.
        patience: How long it is waited for while it is away.
        observer: Receives the events of reading.
        derived: Directory of the files that were made with the index, if any.
        store: Cache of whole shards; None if `access` keeps none.
    """

    access: Access
    storage: Storage
    retries: int
    patience: Patience
    observer: Observer | None
    derived: Path | None
    store: ShardStore | None

    @property
    def are_fetched(self) -> bool:
        """Whether samples may have to be downloaded, or shards be decompressed."""
        return self.store is None or self.store.fetches


def make_access(name: str | None) -> Access:
    """Return a way to read shards by its name; None is that of the core.

    Raises:
        ConfigError: If the name is no text, or its argument is invalid.
        PluginError: If it is not installed.
    """
    return cast("Access", make("access", "shard" if name is None else name))


def find_access(stream: Stream, index: Index) -> Access:
    """Return how the shards of a stream are read.

    Raises:
        PluginError: If it is not installed.
    """
    names = {schema.format.access_in_place for schema in index.schemas} - {None}
    return make_access(names.pop() if names and stream.location.in_place else stream.access)
