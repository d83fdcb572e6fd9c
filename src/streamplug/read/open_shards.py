"""Shards that are open: mapped into memory, checked, claimed by blocks, and closed when others need room."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import repeat
from threading import Lock, RLock
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np

from streamplug.cache import ShardStore, close_evicted_callbacks
from streamplug.errors import (
    CorruptShardError,
    DataError,
    PluginError,
    StorageError,
    StreamplugError,
    class_name,
)
from streamplug.index import Index, Schema
from streamplug.interfaces import ShardInfo, ShardReader, lazy_values
from streamplug.plugin_kit import is_full_disk
from streamplug.read.memory_map import MappedFiles
from streamplug.read.stream_shards import StreamShards
from streamplug.transfer import has_digest, map_disk_errors
from streamplug.types import ColumnValues, Int64, Sample

_Errors = tuple[type[StreamplugError], ...]

SHARD_ERRORS: _Errors = (DataError, StorageError)
MAX_OPEN = 512
"""Maximum number of open shards; they cost address space and page tables, not file descriptors."""

PART_OPEN = 4  # divisor of the cache limit that gives the maximum bytes of a process's open shards
USED_SECONDS = 1.0  # interval between touches of a cached shard in use
SWEEP_SECONDS = 0.1  # interval between searches for evicted shards
_MAX_OPEN_ATTEMPTS = 10
_LOG = logging.getLogger("streamplug.read")
_EMPTY = np.empty(0, np.uint8)
_NO_LISTS = (AbstractSet, Mapping, str, bytes)
"""What has a length, but no values in order."""

_LISTS = (list, np.ndarray)
"""What nearly all encodings return: for these, the slow checks of abstract classes are left out."""


class ShardFailures:
    """Errors of the shards of one stream, raised again without another attempt; nothing at first."""

    def __init__(self) -> None:
        self._errors: dict[int, StreamplugError] | None = None

    def remember(self) -> None:
        """Forget all errors, and remember those to come."""
        self._errors = {}

    @property
    def enabled(self) -> bool:
        """Whether errors are remembered."""
        return self._errors is not None

    def __contains__(self, shard: int) -> bool:
        return shard in (self._errors or {})

    @contextmanager
    def guard(self, shard: int, kinds: _Errors = SHARD_ERRORS) -> Iterator[None]:
        """Raise the remembered error of a shard, or remember one of these kinds that the block raises.

        That of a full disk is not remembered.
        """
        errors = self._errors
        if errors is None:
            yield
            return
        if shard in errors:
            raise copy(errors[shard])  # the error itself would collect tracebacks
        try:
            yield
        except kinds as error:
            if not is_full_disk(error):  # there may be room later
                errors[shard] = copy(error)
            raise


class ColumnSelection:
    """The columns to read of the shards of one schema."""

    def __init__(self, schema: Schema, columns: Sequence[str] | None) -> None:
        self.columns = tuple(c for c in schema.columns if columns is None or c.name in columns)
        self.layout = schema.format.multi_shard_reader(schema.columns)
        # Shards of equal kind, also of several streams, are uniform: they can be read at once. None if they
        # cannot. Encodings of one spec, class and bound decode alike, by one decoder, and formats of one
        # class and argument do, too.
        same = (
            (c.name, c.spec, type(c.encoding), c.encoding.max_value_bytes) for c in schema.columns
        )
        self.lazy_columns = tuple(c.name for c in self.columns if c.encoding.lazy)
        several = self.layout is None or len(schema.format.roles) > 1
        form = type(schema.format), schema.entry.get("format")
        self.kind = None if several else (*form, schema.decoders, *same)


class OpenShard:
    """A memory-mapped shard."""

    def __init__(
        self, reader: ShardReader, selection: ColumnSelection, where: str, files: MappedFiles
    ) -> None:
        self.reader = reader
        self.columns, self.lazy_columns = selection.columns, selection.lazy_columns
        self.data = next(iter(files.data.values()), _EMPTY)  # the first file
        self.layout = selection.layout
        self.kind = selection.kind if len(self.data) else None
        self.where = where  # name in errors
        self.populated = False
        self.paths, self.inode_of = files.inodes, files.inode_of
        self.bytes = sum(len(data) for data in files.data.values())
        self.used = time.monotonic()  # time of the last touch in the cache
        self.recent = False  # whether it was used since it was last considered for closing
        self.row: Callable[[int], Sample] | None = None
        self._files = files
        self._is_as_indexed: bool | None = None

    @cached_property
    def name_of(self) -> Callable[[int], str | None] | None:
        """See `ShardReader.name_of`."""
        return self.reader.name_of

    def row_reader(self) -> Callable[[int], Sample]:
        """Return a function that reads a sample."""
        read = self.reader.row_reader(self.columns)
        return place_row(read, self) if self.lazy_columns else read

    def take(self, rows: Int64) -> list[ColumnValues]:
        """Read samples column by column."""
        values = self.reader.take(rows, self.columns)
        self.check_counts(values, len(rows))
        self.set_places(values, repeat(self, len(rows)), rows)
        return values

    def check_counts(self, values: Sequence[Any], count: int) -> None:
        """Raise `PluginError` unless there is a list of `count` values for each column."""
        if len(values) != len(self.columns):
            kind = class_name(type(self.reader))
            raise PluginError(
                f"{self.where}: {kind} returned {len(values)} columns; expected {len(self.columns)}"
            )
        for column, of_column in zip(self.columns, values):
            try:
                listed = type(of_column) in _LISTS or not isinstance(of_column, _NO_LISTS)
                size = len(of_column) if listed else -1
            except TypeError:  # no sequence
                size = -1
            if size != count:
                kind = class_name(type(column.encoding))
                what = type(of_column).__name__ if size < 0 else f"{size} values"
                raise PluginError(
                    f"{self.where}: column {column.name!r} ({column.spec}): {kind} returned {what} for "
                    f"{count} samples; its decode_batch() and unbatch() must return one value for each"
                )

    def set_places(
        self, values: Sequence[ColumnValues], shards: Iterable[OpenShard], rows: Int64
    ) -> None:
        """Tell lazy values where they are stored.

        Args:
            values: Values of each column, of uniform shards.
            shards: The shard of each sample.
            rows: Number of each sample in its shard.
        """
        if not self.lazy_columns:
            return
        places = list(zip(shards, rows.tolist()))
        for column, of_column in zip(self.columns, values):
            if column.name in self.lazy_columns:
                for value, (shard, row) in zip(of_column, places):
                    _set_place(value, shard.where, shard.name_of, row, column.name)

    def populate(self) -> None:
        """Map all pages of its files, because most of its samples will be read."""
        self.populated = True
        self._files.populate()

    def located(self, error: DataError) -> DataError:
        """Return the error with the name of this shard in front."""
        return type(error)(f"{self.where}: {error}")

    def is_as_indexed(self, info: ShardInfo) -> bool:
        """Return whether its files have digests of the index; they are read once.

        False if the index has none, or no whole files are open.
        """
        if self._is_as_indexed is None:
            self._is_as_indexed = _have_digests(info, self._files)
        return self._is_as_indexed

    def evicted(self) -> bool:
        """Return whether its files were deleted or replaced, and only the mapping keeps their disk space."""
        try:
            return any(path.stat().st_ino != inode for path, inode in self.paths.items())
        except OSError:
            return True


class OpenShards(StreamShards):
    """The open shards of one stream: opened at first use, closed by CLOCK, a second-chance LRU.

    If the cache has a limit, evicted shards are closed, too, because their disk space is released only then,
    and open shards take at most a quarter of the limit.
    """

    def __init__(self, index: Index, store: ShardStore, columns: Sequence[str] | None) -> None:
        """Create an empty cache of the shards of `index`; `columns` None selects all."""
        self._index, self._store, self._names = index, store, columns
        self._open: dict[int, OpenShard] = {}
        # Without a limit, callers that mark a shard as recent may look it up here without the lock.
        self.lock_free: Mapping[int, OpenShard] = self._open if store.limit is None else {}
        self._new_locks()
        self._bytes = 0
        self.failures = ShardFailures()
        self._repaired: set[int] = set()
        self._claims: Counter[int] = Counter()
        self._max_bytes = None if store.limit is None else store.limit // PART_OPEN
        self._swept = 0.0
        self.limit = store.limit
        self.selections = [ColumnSelection(schema, columns) for schema in index.schemas]
        self.kinds = [selection.kind for selection in self.selections]
        _all.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenShards, (self._index, self._store, self._names)

    def _new_locks(self) -> None:
        # Reentrant: garbage collection may end a loop, which releases shards, while this thread holds it.
        self._lock = RLock()
        self._repair_lock = Lock()

    def free_in_child(self) -> None:
        """Drop what another thread was changing at the fork, and make new locks."""
        if not self._lock.acquire(blocking=False):
            self._open.clear()
            self._bytes = 0
        self._new_locks()  # always: another thread may have been acquiring them at the fork

    def get(self, shard: int) -> OpenShard:
        """Return an open shard, downloading and opening it if necessary."""
        cached = self.if_open(shard)
        if cached is not None:
            return cached
        with self.failures.guard(shard):
            opened = self._open_shard(shard)
        with self._lock:
            self._close(shard)
            self._open[shard] = opened
            self._bytes += opened.bytes
            if self._too_many():
                self._close_some(shard)
        return opened

    def if_open(self, shard: int) -> OpenShard | None:
        """Return a shard if it is open, else None."""
        cached = self._open.get(shard)  # without the lock, which takes longer than the lookup
        if cached is None:
            return None
        cached.recent = True
        if self.limit is not None and time.monotonic() - cached.used > USED_SECONDS:
            self._touch(cached)
        return cached

    def keep(self, shard: int, times: int) -> None:
        """Add `times` to the number of claims that keep a shard open.

        It has an effect only with a limit, where opening a shard again may mean downloading it again.
        """
        if self.limit is not None:
            with self._lock:
                self._claims[shard] += times
                if not self._claims[shard]:
                    del self._claims[shard]

    def repair(self, shard: int, damaged: OpenShard, error: DataError) -> OpenShard | None:
        """Download a shard with a damaged sample again, once in a process.

        Return the new shard; None if it was repaired before, is read in place, or is as the index says.
        """
        with self._repair_lock:  # only one of the threads that find the damage downloads it
            if damaged.is_as_indexed(self._index.shard(shard)):
                return None
            if not damaged.evicted():
                if shard in self._repaired:
                    return None
                self._repaired.add(shard)
                if not self._store.discard(shard, damaged.inode_of):
                    return None
                _LOG.warning("%s: fetching it again", error)
            with self._lock:
                if self._open.get(shard) is damaged:
                    self._close(shard)
            return self.get(shard)

    def info(self, shard: int) -> ShardInfo:
        """Return the metadata of a shard."""
        return self._index.shard(shard)

    def remember_failures(self) -> None:
        """Raise errors of shards again, see `StreamShards`."""
        self.failures.remember()

    def _too_many(self) -> bool:
        return len(self._open) > MAX_OPEN or (
            self._max_bytes is not None and self._bytes > self._max_bytes
        )

    def _close_some(self, newest: int) -> None:
        """Close shards not used since the previous call, or else any, until the limits hold."""
        for number in 2 * list(self._open):
            if not self._too_many():
                break
            candidate = self._open.get(number)
            if candidate is None or number == newest or number in self._claims:
                continue
            if not candidate.recent:
                self._close(number)
            candidate.recent = False

    def _close(self, shard: int) -> None:
        # The mapping lives on while arrays refer to it.
        closed = self._open.pop(shard, None)
        if closed is not None:
            self._bytes -= closed.bytes

    def _touch(self, shard: OpenShard) -> None:
        """Update the shard's time of use in the cache, so that it is not evicted."""
        shard.used = time.monotonic()
        if not self._store.touch(list(shard.paths)):
            self.close_evicted()

    def close_evicted(self, needed: Container[int] | None = None) -> None:
        """Close evicted shards except those in `needed`, by default the claimed ones."""
        with self._lock:
            needed = self._claims if needed is None else needed
            evicted = [number for number, shard in self._open.items() if shard.evicted()]
            for number in evicted:
                if number not in needed:
                    self._close(number)
            self._swept = time.monotonic()

    def close_all(self) -> bool:
        """Close all shards, and return whether there were any; those in use stay mapped until then."""
        with self._lock:
            numbers = list(self._open)
            for number in numbers:
                self._close(number)
        return bool(numbers)

    def _open_shard(self, shard: int) -> OpenShard:
        if self.limit is not None and time.monotonic() - self._swept > SWEEP_SECONDS:
            self.close_evicted()
        is_repaired = False
        for _ in range(_MAX_OPEN_ATTEMPTS):
            files = self._map_files(shard)
            if files is None:
                continue
            try:
                opened = self._open_files(shard, files)
            except DataError as error:
                if _have_digests(self._index.shard(shard), files):
                    raise  # a new copy would be the same
                # A new copy may be intact. If not, it is discarded, too, so that no process uses it.
                if not self._store.discard(shard, files.inode_of) or is_repaired:
                    raise
                _LOG.warning("%s: fetching it again", error)
                is_repaired = True
                continue
            self._store.touch(list(files.inodes))
            return opened
        raise StorageError(
            f"shard {shard} was evicted {_MAX_OPEN_ATTEMPTS} times before it could be opened; "
            f"raise cache_limit={self._store.limit}, or lower the number of workers"
        )

    def _map_files(self, shard: int) -> MappedFiles | None:
        """Return the mapped files of a shard; None if they were evicted, or other shards had to be closed."""
        fetched: dict[str, BinaryIO] = {}
        try:
            paths = self._store.ensure(shard, fetched)
            with map_disk_errors(next(iter(paths.values()))):
                try:
                    return MappedFiles(paths, fetched)
                except FileNotFoundError:
                    return None
                except OSError as error:
                    if error.errno != errno.ENOMEM or not _close_all():
                        raise
                    return None  # try again in the address space of the closed shards
        finally:
            for file in fetched.values():
                file.close()

    def _open_files(self, shard: int, files: MappedFiles) -> OpenShard:
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
        return OpenShard(reader, self.selections[self._index.schema_of[shard]], where, files)


def _have_digests(info: ShardInfo, files: MappedFiles) -> bool:
    """Return whether there are files of a shard, and all have digests of the index."""
    data = files.data
    return bool(data) and all(has_digest(data[role], info.files[role].raw) for role in data)


_all: WeakSet[OpenShards] = WeakSet()


def _free_all_in_child() -> None:
    for shards in list(_all):
        shards.free_in_child()


def _close_all_evicted() -> None:
    for shards in list(_all):
        shards.close_evicted(())


def _close_all() -> bool:
    closed = [shards.close_all() for shards in list(_all)]
    return any(closed)


close_evicted_callbacks.append(_close_all_evicted)
os.register_at_fork(after_in_child=_free_all_in_child)


class ValuePlace:
    """Where a value is stored, as errors say it; made for each lazy value, so its text is made late."""

    __slots__ = ("_column", "_item", "_name_of", "_row", "_where")

    def __init__(
        self,
        where: str,
        name_of: Callable[[int], str | None] | None,
        row: int,
        column: str,
        item: int | None,
    ) -> None:
        # Not the shard itself, whose files would stay mapped.
        self._where, self._name_of = where, name_of
        self._row, self._column, self._item = row, column, item

    def __str__(self) -> str:
        name = None if self._name_of is None else self._name_of(self._row)
        named = f" ({name})" if name else ""
        item = "" if self._item is None else f", item {self._item}"
        return f"{self._where}: sample {self._row}{named}, column {self._column!r}{item}"


def place_row(read: Callable[[int], Sample], shard: OpenShard) -> Callable[[int], Sample]:
    """Return a function that reads a sample as `read` does, and tells lazy values where they are stored."""
    names, where, name_of = shard.lazy_columns, shard.where, shard.name_of

    def placed(row: int) -> Sample:
        sample = read(row)
        for name in names:
            _set_place(sample[name], where, name_of, row, name)
        return sample

    return placed


def _set_place(
    value: object,
    where: str,
    name_of: Callable[[int], str | None] | None,
    row: int,
    column: str,
) -> None:
    lazies = lazy_values(value)
    is_one = len(lazies) == 1 and lazies[0] is value
    for number, lazy in enumerate(lazies):
        lazy.place = ValuePlace(where, name_of, row, column, None if is_one else number)
