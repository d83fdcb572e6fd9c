"""Keeps the shards that are being read open: mapped, checked, a bounded number at a time."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from threading import Lock, RLock
from typing import Any, BinaryIO
from weakref import WeakMethod, WeakSet

import numpy as np

from streamplug.cache.store import ShardStore
from streamplug.errors import CorruptShardError, DataError, StorageError
from streamplug.index import Index, Schema
from streamplug.interfaces import ShardReader
from streamplug.read.mapped import MappedFiles
from streamplug.transfer.disk_errors import local_errors
from streamplug.types import Sample

MAX_OPEN = 512
"""Shards kept open; an open shard costs address space and page tables, not a file descriptor."""

PART_OPEN = 4
"""Of a cache with a limit, one part in so many may be open in a process, and at least one shard."""

USED_SECONDS = 1.0  # how often a cache is told that a shard is still in use
SWEEP_SECONDS = 0.1  # how often evicted ones are looked for while others are opened
_ATTEMPTS = 10
_LOG = logging.getLogger("streamplug.read")

_EMPTY = np.empty(0, np.uint8)


class ColumnSelection:
    """What is read of the shards of one schema.

    Attributes:
        columns: Those that were asked for, in stored order.
        layout: Reads many shards at once, or None.
        kind: What shards have in common that can be read at once, also of several streams; None if they
            cannot.
    """

    def __init__(self, schema: Schema, columns: Sequence[str] | None) -> None:
        self.columns = tuple(c for c in schema.columns if columns is None or c.name in columns)
        self.layout = schema.format.multi_shard_reader(schema.columns)
        # Encodings of one spec and class decode alike, by one decoder.
        same = ((c.name, c.spec, type(c.encoding)) for c in schema.columns)
        several = self.layout is None or len(schema.format.roles) > 1
        self.kind = None if several else (type(schema.format), schema.decoders, *same)


class OpenShard:
    """A shard that is being read.

    Attributes:
        reader: Reads its samples.
        columns: Those of its columns that were asked for, in stored order.
        where: What errors call it.
        populated: Whether all of it was mapped at once.
        bytes: What its files take.
        data: Its file, to be read together with others.
        kind: What it has in common with others that can be read together with it; None if it cannot.
        layout: What reads them.
        inode_of: Which file each of its roles is read from.
        recent: Whether it was used since it was last considered to be closed.
        row: Reads one of its samples, once that was asked for.
        used: When the cache was told last that it is in use, on the clock of `time.monotonic`.
    """

    __slots__ = (
        "_files",
        "bytes",
        "columns",
        "data",
        "inode_of",
        "kind",
        "layout",
        "paths",
        "populated",
        "reader",
        "recent",
        "row",
        "used",
        "where",
    )

    def __init__(
        self, reader: ShardReader, wanted: ColumnSelection, where: str, files: MappedFiles
    ) -> None:
        self.reader = reader
        self.columns = wanted.columns
        self.data = next(iter(files.data.values()), _EMPTY)
        self.layout = wanted.layout
        self.kind = wanted.kind if len(self.data) else None
        self.where = where
        self.populated = False
        self.paths, self.inode_of = files.inodes, files.inode_of
        self.bytes = sum(len(data) for data in files.data.values())
        self.used = time.monotonic()
        self.recent = False
        self.row: Callable[[int], Sample] | None = None
        self._files = files

    def populate(self) -> None:
        """Map its files as a whole, as most of their samples are going to be read."""
        self.populated = True
        self._files.populate()

    def located(self, error: DataError) -> DataError:
        """Return an error with the place of this shard in front."""
        return type(error)(f"{self.where}: {error}")

    def evicted(self) -> bool:
        """Say whether its files are gone, or others, so that only this keeps their room on the disk."""
        try:
            return any(path.stat().st_ino != inode for path, inode in self.paths.items())
        except OSError:
            return True


class OpenShards:
    """Opens shards of one stream when they are first read, and closes those not used for long.

    If the cache has a limit, also those that were evicted from it, whose room on the disk is free
    only when nobody has them open, and those beyond a quarter of the limit.
    """

    def __init__(self, index: Index, store: ShardStore, columns: Sequence[str] | None) -> None:
        """Read the shards of `index`, whose files `store` makes ready.

        Args:
            index: Describes them.
            store: Brings their files.
            columns: Names of the columns to decode; None for all.
        """
        self._index = index
        self._store = store
        self._open: dict[int, OpenShard] = {}
        # Where there is no limit, whoever marks a shard as recent may take it from here.
        self.at_hand: Mapping[int, OpenShard] = self._open if store.limit is None else {}
        self._locks()
        self._bytes = 0
        self._healed: set[int] = set()
        self._kept: Counter[int] = Counter()
        self._limit = None if store.limit is None else store.limit // PART_OPEN
        self._swept = 0.0
        store.when_full = WeakMethod(self._let_go_of_all)
        self.wanted = [ColumnSelection(schema, columns) for schema in index.schemas]
        _all.add(self)

    def __getstate__(self) -> dict[str, Any]:
        none: dict[int, OpenShard] = {}
        empty = {"_open": none, "at_hand": none if self._limit is None else {}}
        none_held = {"_lock": None, "_healing": None}
        return {**self.__dict__, **empty, "_kept": Counter(), "_bytes": 0, **none_held}

    def _locks(self) -> None:
        # The collector may end a loop, which lets go of shards, while its thread holds this.
        self._lock = RLock()
        self._healing = Lock()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._locks()
        self._store.when_full = WeakMethod(self._let_go_of_all)
        _all.add(self)

    def free_in_child(self) -> None:
        """Begin anew in a fork, if it was made while another thread, which it lacks, changed this."""
        if not self._lock.acquire(blocking=False):
            self._open.clear()
            self._bytes = 0
        self._locks()  # in any case: a thread that was just about to have it does not show

    def get(self, shard: int) -> OpenShard:
        """Return an open shard.

        Raises:
            StorageError: If its files cannot be had.
            DataError: If they are damaged.
        """
        found = self.if_open(shard)
        if found is not None:
            return found
        opened = self._open_shard(shard)
        with self._lock:
            self._close(shard)
            self._open[shard] = opened
            self._bytes += opened.bytes
            if self._too_many():
                self._close_some(shard)
        return opened

    def if_open(self, shard: int) -> OpenShard | None:
        """Return a shard if it is open."""
        found = self._open.get(shard)  # without the lock, which takes longer than all the rest
        if found is None:
            return None
        found.recent = True
        if self._limit is not None and time.monotonic() - found.used > USED_SECONDS:
            self._use(found)
        return found

    def keep(self, shard: int, times: int) -> None:
        """Have a shard stay open, once it is, for so many times more; less if negative.

        Only where a limit would close it: there, opening it again might mean to fetch it again.
        """
        if self._limit is not None:
            with self._lock:
                self._kept[shard] += times
                if not self._kept[shard]:
                    del self._kept[shard]

    def heal(self, shard: int, damaged: OpenShard, error: DataError) -> OpenShard | None:
        """Fetch a shard again, once in a process, in which a sample turned out to be damaged.

        Args:
            shard: Which one.
            damaged: It, as it was opened.
            error: What is wrong with it.

        Returns:
            It, opened anew; None if that has been tried before, or it is read where it lies.

        Raises:
            StorageError: If its files cannot be had.
            DataError: If they are damaged.
        """
        with self._healing:  # what several threads find damaged, one of them fetches
            if not damaged.evicted():
                if shard in self._healed:
                    return None
                self._healed.add(shard)
                if not self._store.discard(shard, damaged.inode_of):
                    return None
                _LOG.warning("%s: fetching it again", error)
            with self._lock:
                if self._open.get(shard) is damaged:
                    self._close(shard)
            return self.get(shard)

    def basename(self, shard: int) -> str:
        """Return the name of a shard's first raw file."""
        return next(iter(self._index.shard(shard).files.values())).raw.basename

    def nbytes(self, shard: int) -> int:
        """Return the bytes of a shard's raw files."""
        return sum(file.raw.bytes for file in self._index.shard(shard).files.values())

    @property
    def limit(self) -> int | None:
        """Bytes that all shards may take in the cache, or None for any number."""
        return self._store.limit

    # -- what stays open ------------------------------------------------------------

    def _too_many(self) -> bool:
        return len(self._open) > MAX_OPEN or (self._limit is not None and self._bytes > self._limit)

    def _close_some(self, newest: int) -> None:
        """Close some of those that were not used since they were last passed over, or else of all."""
        for shard in 2 * list(self._open):
            if not self._too_many():
                break
            found = self._open.get(shard)
            if found is None or shard == newest or shard in self._kept:
                continue
            if not found.recent:
                self._close(shard)
            found.recent = False

    def _close(self, shard: int) -> None:
        # The mapping goes when nobody reads from it any more.
        closed = self._open.pop(shard, None)
        if closed is not None:
            self._bytes -= closed.bytes

    def _use(self, found: OpenShard) -> None:
        """Tell the cache that a shard is in use, lest it is evicted; it may be used in any case."""
        found.used = time.monotonic()
        if not self._store.touch(list(found.paths)):
            self._let_go()

    def _let_go(self, kept: Container[int] | None = None) -> None:
        """Close the shards that were evicted, but those that are about to be read."""
        with self._lock:
            kept = self._kept if kept is None else kept
            gone = [number for number, each in self._open.items() if each.evicted()]
            for shard in gone:
                if shard not in kept:
                    self._close(shard)
            self._swept = time.monotonic()

    def _let_go_of_all(self) -> None:
        """Close all shards that were evicted: the disk is full."""
        self._let_go(())

    # -- opening ----------------------------------------------------------------------

    def _open_shard(self, shard: int) -> OpenShard:
        if self._limit is not None and time.monotonic() - self._swept > SWEEP_SECONDS:
            self._let_go()
        healed = False
        for _ in range(_ATTEMPTS):
            files = self._mapped(shard)
            if files is None:
                continue
            try:
                opened = self._opened(shard, files)
            except DataError as error:
                # Fetched anew, it may be whole. If not it goes too, so that nobody takes it for that.
                if not self._store.discard(shard, files.inode_of) or healed:
                    raise
                _LOG.warning("%s: fetching it again", error)
                healed = True
                continue
            self._store.touch(list(files.inodes))
            return opened
        raise StorageError(
            f"shard {shard} was evicted {_ATTEMPTS} times before it could be opened; "
            f"raise cache_limit={self._store.limit}, or lower the number of workers"
        )

    def _mapped(self, shard: int) -> MappedFiles | None:
        """Return the files of a shard, or None if they were evicted just now."""
        fetched: dict[str, BinaryIO] = {}
        try:
            paths = self._store.ensure(shard, fetched)
            with local_errors(next(iter(paths.values()))):
                try:
                    return MappedFiles(paths, fetched)
                except FileNotFoundError:
                    return None
        finally:
            for file in fetched.values():
                file.close()

    def _opened(self, shard: int, files: MappedFiles) -> OpenShard:
        info = self._index.shard(shard)
        schema = self._index.schema(shard)
        where = f"shard {shard} ({', '.join(map(str, files.inodes))})"
        for role, data in files.data.items():
            if len(data) != info.files[role].raw.bytes:
                raise CorruptShardError(
                    f"{where}: {len(data)} bytes, the index says {info.files[role].raw.bytes}"
                )
        try:
            reader = schema.format.open(info, files.data, schema.columns)
        except DataError as error:
            raise type(error)(
                f"{where}: {error}; the file is damaged, write or copy it again"
            ) from error
        return OpenShard(reader, self.wanted[self._index.schema_of[shard]], where, files)


_all: WeakSet[OpenShards] = WeakSet()


def _free_all_in_child() -> None:
    for shards in list(_all):
        shards.free_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all_in_child)
