"""Location of a stream's data set and of its cache."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2s
from pathlib import Path
from typing import Any

from streamplug.cache.user_cache import default_cache_dir
from streamplug.errors import ConfigError, PluginError, prefix_errors
from streamplug.index import INDEX_NAME
from streamplug.interfaces import Format, Storage
from streamplug.interfaces.storage import public_url, public_urls
from streamplug.plugin.location import absolute_location, join, local_path, open_storage
from streamplug.plugin.registry import is_known, make
from streamplug.scan.glob import FileSet, parse_locations
from streamplug.scan.listing import is_data_file
from streamplug.transfer.probe import UnavailableStorage


@dataclass(frozen=True)
class StreamLocation:
    """Location of a data set and of its cache; the attributes are those of the `Stream`."""

    remote: str | Sequence[str] | None
    local: str | None
    split: str | None
    format: str | None
    storage_options: Mapping[str, Any] | None
    reads_ranges: bool

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "storage"}

    @cached_property
    def files(self) -> FileSet | None:
        """Files of the data set if there may be no index.json; None if there must be one."""
        location = self.local if self.remote is None else self.remote
        if self.format is None or is_known("source", self.format):
            if not isinstance(location, str):
                raise ConfigError(
                    f"remote={public_urls(location)!r:.200}: a list of files needs a format="
                )
            return None
        first = location if isinstance(location, str) else next(iter(location or ()), "")
        with prefix_errors(public_url(first), PluginError):
            format_: Format = make("format", self.format)
        files = parse_locations(location or "", lambda name: is_data_file(name, format_))
        if self.split is None:
            return files
        if not files.whole:
            raise ConfigError(
                f"split={self.split!r} with remote={public_urls(location)!r:.200}: a split is of a "
                "directory; name it in remote=, and give split= to other streams only"
            )
        return FileSet(join(files.root, self.split), files.parts)

    def check(self) -> None:
        """Raise `ConfigError` for a location that does not go with the format."""
        _ = self.files

    @property
    def selection(self) -> str | None:
        """Key of the files that are read without an index.json; None with one."""
        return None if self.files is None else json.dumps([self.format, *self.files.parts])

    @property
    def parent(self) -> str:
        """URL or path of the data set, without its split."""
        if self.files is not None and not self.files.whole:
            return self.files.root
        if self.remote is None or isinstance(self.remote, str):
            return str(self.remote if self.remote is not None else self.local)
        return self.remote[0]  # a list of one directory

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
        url = join(self.parent, self.split or "") if self.files is None else self.files.root
        return absolute_location(url)

    @property
    def in_place(self) -> bool:
        """Whether the data set is read where it is, without a cache."""
        if self.remote is None:
            return True
        remote_path = local_path(self.parent)
        if remote_path is None or self.local is None:
            return remote_path is not None
        # With `local` equal to `remote` it is read in place, as in mosaicml-streaming.
        cache = local_path(self.local)
        return cache is not None and cache.resolve() == remote_path.resolve()

    @property
    def may_be_offline(self) -> bool:
        """Whether the cache may replace an unreachable remote."""
        cached = not self.reads_ranges and not self.in_place
        return cached and (self.directory / INDEX_NAME).exists()

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
            parts = () if self.files is None or self.files.whole else self.files.parts
            source = "\n".join([self.storage.url, *parts])
            name = blake2s(source.encode(errors="surrogateescape"), digest_size=16).hexdigest()
            return default_cache_dir(make=False) / name
        return path.absolute()

    @property
    def directory(self) -> Path:
        """Directory of the split's shards."""
        has_splits = self.local is not None or self.in_place
        return self.root / (self.split or "") if has_splits else self.root
