"""Keeps the shards that are being read open: mapped, checked, a bounded number at a time."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError, DataError
from streamplug.fetch import ShardStore
from streamplug.fetch.files import local_errors
from streamplug.index import Index
from streamplug.interfaces import Column, ShardReader
from streamplug.types import Bytes1D

MAX_OPEN = 512
"""Shards kept open; an open shard costs address space and page tables, not a file descriptor."""

_POPULATE_READ = 22  # madvise(2), Linux 5.14; the mmap module has no name for it yet


class OpenShard:
    """A shard that is being read.

    Attributes:
        reader: Reads its samples.
        columns: Those of its columns that were asked for, in stored order.
        where: What errors call it.
    """

    __slots__ = ("_maps", "columns", "populated", "reader", "where")

    def __init__(
        self, reader: ShardReader, columns: Sequence[Column], where: str, maps: Sequence[mmap.mmap]
    ) -> None:
        self.reader = reader
        self.columns = columns
        self.where = where
        self.populated = False
        self._maps = maps

    def populate(self) -> None:
        """Map the whole file at once: cheaper than a page fault at each of its samples."""
        self.populated = True
        for map_ in self._maps:
            with suppress(OSError, ValueError):  # an older kernel: pages then come one by one
                map_.madvise(_POPULATE_READ)

    def located(self, error: DataError) -> DataError:
        """Return an error with the place of this shard in front."""
        return type(error)(f"{self.where}: {error}")


class OpenShards:
    """Opens shards of one stream when they are first read, and closes those not used for long."""

    def __init__(self, index: Index, store: ShardStore, columns: Sequence[str] | None) -> None:
        """Read the shards of `index`, whose files `store` makes ready.

        Args:
            index: Describes them.
            store: Brings their files.
            columns: Names of the columns to decode; None for all.
        """
        self._index = index
        self._store = store
        self._open: OrderedDict[int, OpenShard] = OrderedDict()
        self._lock = Lock()
        self._wanted = [
            tuple(c for c in schema.columns if columns is None or c.name in columns)
            for schema in index.schemas
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()

    def get(self, shard: int) -> OpenShard:
        """Return an open shard.

        Raises:
            StorageError: If its files cannot be had.
            DataError: If they are damaged.
        """
        with self._lock:
            found = self._open.get(shard)
            if found is not None:
                self._open.move_to_end(shard)
                return found
        opened = self._open_shard(shard)
        with self._lock:
            self._open[shard] = opened
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return opened

    def basename(self, shard: int) -> str:
        """Return the name of a shard's first raw file."""
        return next(iter(self._index.shard(shard).files.values())).raw.basename

    def _open_shard(self, shard: int) -> OpenShard:
        paths = self._store.ensure(shard)
        info = self._index.shard(shard)
        schema = self._index.schema(shard)
        where = f"shard {shard} ({', '.join(map(str, paths.values()))})"
        with local_errors(next(iter(paths.values()))):
            maps, files = _map_files(paths)
        for role, data in files.items():
            if len(data) != info.files[role].raw.bytes:
                raise CorruptShardError(
                    f"{where}: {len(data)} bytes, the index says {info.files[role].raw.bytes}"
                )
        try:
            reader = schema.format.open(info, files, schema.columns)
        except DataError as error:
            raise type(error)(
                f"{where}: {error}; the file is damaged, write or copy it again"
            ) from error
        return OpenShard(reader, self._wanted[self._index.schema_of[shard]], where, maps)


def _map_files(paths: Mapping[str, Path]) -> tuple[list[mmap.mmap], dict[str, Bytes1D]]:
    maps: list[mmap.mmap] = []
    files: dict[str, Bytes1D] = {}
    for role, path in paths.items():
        with path.open("rb") as stream:
            if path.stat().st_size == 0:  # nothing to map
                files[role] = np.empty(0, np.uint8)
                continue
            maps.append(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
        files[role] = np.frombuffer(maps[-1], np.uint8)
    return maps, files
