"""`Stream` with the attributes and methods that it has in mosaicml-streaming."""

from __future__ import annotations

import os
import sys
from copy import copy
from dataclasses import fields
from hashlib import blake2s
from pathlib import Path
from typing import Any

import numpy as np

import streamplug
from streamplug.cache import parse_cache_limit
from streamplug.errors import OutputExistsError
from streamplug.index import Index
from streamplug.interfaces import Storage
from streamplug.plan import Weight
from streamplug.source import OpenSources, OpenStream
from streamplug.transfer import Observer, make_sibling_state, make_temp_root, temp_root
from streamplug_mosaic.compat.checks import (
    EmptyStreamError,
    check_cache_limit,
    check_overrides,
    index_errors,
)
from streamplug_mosaic.compat.shards import Shard

_NEVER_CALLED = (
    *("_decompress_shard_part", "_download_file", "_prepare_shard_part", "apply_default"),
    *("get_shards", "prepare_shard", "set_up_local"),
)
"""Methods that mosaicml-streaming calls."""
_DEFAULTS = (
    "split",
    "download_retry",
    "download_timeout",
    "download_patience",
    "validate_hash",
    "keep_zip",
)


class Stream(streamplug.Stream):
    """A `streamplug.Stream` that has its defaults and derived weights once it is in a data set."""

    _arguments: dict[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of a subclass, or an argument, which the next data set uses."""
        object.__setattr__(self, name, value)  # the base class is frozen
        if name in vars(self).get("_arguments", ()):
            vars(self)["_arguments"] = {**self._arguments, name: value}
            vars(self).pop("location", None)

    def __post_init__(self) -> None:
        is_temporary = self.local is None
        vars(self)["remote"] = self.remote or None  # "" is none
        vars(self)["split"] = self.split or ""
        vars(self)["validate_hash"] = self.validate_hash or None
        if is_temporary:
            vars(self)["local"] = temporary_directory(self.remote, self.split)
        # A data set changes attributes.
        vars(self)["_arguments"] = {field.name: getattr(self, field.name) for field in fields(self)}
        super().__post_init__()
        if is_temporary:
            create_directory(str(self.local))

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
        """Return this stream with defaults for arguments that are None; an empty split counts as None."""
        stream = self._without_defaults()
        for name, value in defaults.items():
            if getattr(stream, name) is None or (name == "split" and not stream.split):
                vars(stream)[name] = value
        stream.__post_init__()
        return stream

    def open(self, observer: Observer | None = None) -> OpenStream:
        """Open this stream as `streamplug.Stream` does.

        Raises:
            StreamplugError: As there, or if it has no samples, or a subclass overrides what is never called.
        """
        check_overrides(type(self), Stream, _NEVER_CALLED)
        cache = self.cache
        if self.local is not None and cache is not None:
            for directory in {cache[0], cache[0] / (self.split or "")}:
                make_sibling_state(directory)
        with index_errors(self.url, is_local=self.remote is None):
            opened = super().open(observer)
            if not sum(opened.index.shard(number).samples for number in range(len(opened.index))):
                raise EmptyStreamError(f"Stream contains no samples: {self.url}")
            return opened

    def find_index(self, storage: Storage, retries: int) -> tuple[Index, Path | None]:
        """Read the index as `streamplug.Stream` does, and subtract its size from the cache limit.

        Raises:
            StreamplugError: As there, or if the cache limit is too low.
        """
        index, derived = super().find_index(storage, retries)
        limit = self._arguments["cache_limit"]
        if limit is not None and self.cache is not None and derived is None:
            limit, index_size = parse_cache_limit(limit, self.location.root), self.get_index_size()
            shard_sizes = sum(table.bytes for table in index.tables.values())
            check_cache_limit(limit, index_size, int(np.max(shard_sizes, initial=0)))
            vars(self)["cache_limit"] = limit - index_size
        return index, derived

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
        return shards_of([opened], OpenSources([opened]).make_reader(None).row)

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
        vars(self).update({name: getattr(used, name) for name in _DEFAULTS}, **weights)
        vars(self).pop("location", None)  # cached, and depends on the split

    def _without_defaults(self) -> Stream:
        stream = copy(self)
        vars(stream).update(self._arguments)
        vars(stream).pop("location", None)
        return stream


def temporary_directory(remote: Any, split: str | None) -> str:
    """Return the directory of a stream without `local`; it depends on the user, its remote and split alone.

    Its parent is private: in the directory for temporary files, others could take its name first.
    """
    digest = (
        ""
        if remote is None
        else blake2s(str(remote).encode(errors="surrogateescape"), digest_size=16).hexdigest()
    )
    return "/".join([str(temp_root()), digest, split or ""])


def create_directory(path: str) -> None:
    """Create a directory once for all ranks of a node, which wait for it.

    Raises:
        OutputExistsError: If it exists.
        AccessDenied: If its private parent belongs to another user.
    """
    if os.environ.get("LOCAL_RANK", "0") == "0":
        make_temp_root()
        try:
            Path(path).mkdir(parents=True)
        except FileExistsError:
            raise OutputExistsError(
                f"Could not create a temporary local directory {path}: it exists. Give local= to use it "
                "again, or remove it"
            ) from None
    if "torch" in sys.modules:  # otherwise there is no process group
        from streamplug_mosaic.compat.distributed import barrier

        barrier()


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
