"""Where the data set and the cache of a stream are, from its `remote=`, `local=` and `split=`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2s
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamplug.cache import default_cache_dir
from streamplug.errors import ConfigError, PluginError
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Storage, public_url
from streamplug.plugin import absolute_location, join, local_path, open_storage
from streamplug.source.access import make_access
from streamplug.transfer import UnavailableStorage

if TYPE_CHECKING:
    from typing_extensions import Self

    from streamplug.stream import Stream


@dataclass(frozen=True)
class StreamLocation:
    """Location of a data set and of its cache.

    Attributes:
        parent: URL or path of the data set, without its split.
        local: Cache directory that the stream names.
        split: Subdirectory of both.
        storage_options: Options of the storage.
        keeps_shards: Whether the access of the stream keeps shards.
        parts: Format, names and patterns of the files below `parent` that are the data set; empty for all.
        subdirectory: Subdirectory of `root` with the shards, where data sets share a cache directory.
    """

    parent: str
    local: str | None
    split: str | None
    storage_options: Mapping[str, Any] | None
    keeps_shards: bool
    parts: tuple[str, ...] = ()
    subdirectory: str = ""

    @classmethod
    def of(cls, stream: Stream, parent: str, **more: Any) -> Self:
        """Return the location of a stream whose data set is at `parent`."""
        keeps_shards = make_access(stream.access).keeps_shards
        return cls(parent, stream.local, stream.split, stream.storage_options, keeps_shards, **more)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "storage"}

    @cached_property
    def storage(self) -> Storage:
        """Storage of the data set, opened once in each process."""
        try:
            return open_storage(self._url, self.storage_options)
        except PluginError as error:
            if self.local is None or not self.may_be_offline:
                raise
            return UnavailableStorage(self._url, error)

    # Stored, as is `root`: the working directory may change after the stream was opened.
    @cached_property
    def _url(self) -> str:
        return absolute_location(join(self.parent, self.split or ""))

    @property
    def in_place(self) -> bool:
        """Whether the data set is read where it is, without a cache."""
        remote_path = local_path(self.parent)
        if remote_path is None or self.local is None:
            return remote_path is not None
        # With `local` equal to `remote` it is read in place, as in mosaicml-streaming.
        cache = local_path(self.local)
        return cache is not None and cache.resolve() == remote_path.resolve()

    @property
    def may_be_offline(self) -> bool:
        """Whether the cache may replace an unreachable remote."""
        is_cached = self.keeps_shards and not self.in_place
        return is_cached and (self.directory / INDEX_NAME).exists()

    @cached_property
    def root(self) -> Path:
        """Absolute cache directory of all splits; that of the data set if it is read in place."""
        path = local_path(self.parent) if self.in_place else None
        if path is None and self.local is not None:
            path = local_path(self.local)
            if path is None:
                raise ConfigError(
                    f"local={public_url(self.local)!r} must be a path on this machine"
                )
        if path is None:
            names = [self.storage.endpoint, self.storage.url, *self.parts]
            source = "\n".join(names if names[0] else names[1:])
            name = blake2s(source.encode(errors="surrogateescape"), digest_size=16).hexdigest()
            return default_cache_dir(make=False) / name
        return path.absolute()

    @property
    def directory(self) -> Path:
        """Directory of the split's shards."""
        if self.subdirectory:
            return self.root / self.subdirectory
        has_splits = self.local is not None or self.in_place
        return self.root / (self.split or "") if has_splits else self.root
