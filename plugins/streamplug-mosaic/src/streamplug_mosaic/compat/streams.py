"""`Stream` with the attributes and methods that it has in mosaicml-streaming."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from typing import Any

import streamplug
from streamplug.plan import Weight
from streamplug.session.open_stream import OpenStream, read_all
from streamplug.transfer.file_lock import make_sibling_state
from streamplug.transfer.observer import Observer
from streamplug_mosaic.compat.checks import EmptyStreamError, index_errors
from streamplug_mosaic.compat.shards import Shard

_DEFAULTS = ("split", "download_retry", "download_timeout", "validate_hash", "keep_zip")


class Stream(streamplug.Stream):
    """A `streamplug.Stream` that has its defaults and derived weights once it is in a data set."""

    _arguments: dict[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", self.split or "")
        arguments = {field.name: getattr(self, field.name) for field in fields(self)}
        object.__setattr__(self, "_arguments", arguments)
        super().__post_init__()

    @property
    def weight(self) -> Weight:
        """Weight of this stream as the user set it."""
        return Weight(*(self._arguments[name] for name in ("proportion", "repeat", "choose")))

    @property
    def safe_keep_zip(self) -> bool:
        """Whether compressed files are kept: with `keep_zip`, or if they are the data set itself."""
        return bool(self.keep_zip) or self.remote in (None, self.local)

    @property
    def shown_share(self) -> str:
        """Weight in words."""
        return super(Stream, self._without_defaults()).shown_share

    def with_defaults(self, **defaults: Any) -> streamplug.Stream:
        """Return this stream with defaults for arguments that are None."""
        return super(Stream, self._without_defaults()).with_defaults(**defaults)

    def open(self, observer: Observer | None = None) -> OpenStream:
        """Open this stream as `streamplug.Stream` does.

        Raises:
            StreamplugError: As there, or if it has no samples.
        """
        cache = self.cache
        if self.local is not None and cache is not None:
            for directory in {cache[0], cache[0] / (self.split or "")}:
                make_sibling_state(directory)
        with index_errors(self.url, is_local=self.remote is None):
            opened = super().open(observer)
            if not sum(opened.index.shard(number).samples for number in range(len(opened.index))):
                raise EmptyStreamError(f"Stream contains no samples: {self.url}")
            return opened

    def get_shards(self, world: Any = None, allow_unsafe_types: bool = False) -> list[Shard]:
        """Read the index of this stream, and return its shards.

        Args:
            world: Ignored.
            allow_unsafe_types: Whether to allow columns whose decoding can run code.

        Raises:
            StreamplugError: If the index cannot be read, or has such columns.
        """
        opened = self._without_defaults().open()
        opened.check_columns(None, allow_unsafe=allow_unsafe_types)
        return shards_of([opened], read_all([opened], None).row)

    def get_index_size(self) -> int:
        """Return the size of the local index in bytes.

        Raises:
            FileNotFoundError: If it is not there.
        """
        return (self.directory / "index.json").stat().st_size

    def complete(self, used: streamplug.Stream, **weights: float) -> None:
        """Set the attributes that a data set has derived.

        Args:
            used: This stream with the defaults of the data set.
            weights: `proportion`, `repeat` and `choose`.
        """
        for name in _DEFAULTS:
            object.__setattr__(self, name, getattr(used, name))
        for name, value in weights.items():
            object.__setattr__(self, name, value)
        self.__dict__.pop("location", None)  # it depends on the split

    def _without_defaults(self) -> Stream:
        stream = copy(self)
        stream.__dict__.pop("location", None)
        for name, value in self._arguments.items():
            object.__setattr__(stream, name, value)
        return stream


def shards_of(opened: list[OpenStream], read: Any) -> list[Shard]:
    """Return the shards of streams.

    Args:
        opened: The streams.
        read: Returns a sample by its number in all streams.
    """
    shards, first = [], 0
    for stream in opened:
        directory = stream.stream.directory
        for number in range(len(stream.index)):
            shard = Shard(stream, number, first, read, directory)
            shards.append(shard)
            first += shard.samples
    return shards
