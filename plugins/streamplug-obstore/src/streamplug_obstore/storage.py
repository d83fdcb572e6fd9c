"""Base class of the obstore storages."""

from __future__ import annotations

import os
import threading
import weakref
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from streamplug.errors import NotFound, StorageError, StreamplugError
from streamplug.interfaces import Storage
from streamplug.plugin_kit.blocks import write_chunks
from streamplug.plugin_kit.event_loop import gather_results, run
from streamplug.plugin_kit.preallocate import preallocate
from streamplug.types import Buffer, ObjectInfo
from streamplug_obstore.client import client, leave_to_parent
from streamplug_obstore.failures import begins_beyond_end, ignores_ranges, storage_error

GAP = 2**15
"""Ranges with at most this many bytes between them are coalesced."""

READERS = 8
"""Maximum requests in flight for ranges of one object that are read one by one."""

_CHUNK = 1 << 18
"""Minimum bytes of a download chunk; obstore's default takes minutes on a slow connection."""

_PREFIX = "obstore+"

_opening = threading.Lock()
_live: weakref.WeakSet[ObstoreStorage] = weakref.WeakSet()


class ObstoreStorage(Storage):
    """Objects below a URL, through obstore.

    Attributes:
        ways: How credentials can be passed, for errors.
    """

    ways: ClassVar[str] = ""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url.removeprefix(_PREFIX), **options)
        self._store: Any = None
        self._prefix = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    @abstractmethod
    def make_store(self, stores: Any) -> Any:
        """Return a new obstore store.

        Args:
            stores: The module ``obstore.store``.
        """

    def close(self) -> None:
        self._store = None

    def _open(self) -> Any:
        store = self._store
        if store is None:
            with _opening:
                store = self._store or self.make_store(client().store)
                self._store = store
                _live.add(self)
        return store

    def _path(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise StorageError(f"{self.url}: key {key!r} leads out of the location")
        if not key:
            raise StorageError(f"{self.url}: an empty key names no object")
        return self._prefix + key

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except StreamplugError:
            raise
        except Exception as error:  # noqa: BLE001 - obstore raises its own and built-in ones
            # `from None`: the text contains response bodies and possibly signed URLs.
            raise storage_error(error, self.url_of(key), self.ways) from None

    # -- reading ------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        with self._translated(key):
            found: bytes = client().get(self._open(), self._path(key)).bytes().to_bytes()
            return found

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        if stop <= start:
            return b""
        with self._translated(key):
            try:
                path = self._path(key)
                part = client().get_range(self._open(), path, start=start, end=stop)
                found: bytes = part.to_bytes()
            except Exception as error:
                if begins_beyond_end(error):
                    return b""
                if ignores_ranges(error):
                    return self.read(key)[start:stop]
                raise
            return found

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
        merged = _merge(ranges)
        if not merged:
            return [b""] * len(ranges)
        starts, stops = map(list, zip(*merged))
        with self._translated(key):
            try:
                # obstore panics if it coalesces ranges of which one begins beyond the end.
                found = client().get_ranges(
                    self._open(), self._path(key), starts=starts, ends=stops, coalesce=0
                )
                parts = [memoryview(part) for part in found]
            except Exception as error:
                if not (begins_beyond_end(error) or ignores_ranges(error)):
                    raise
                parts = self._one_by_one(key, merged)
        return [_cut(start, stop, starts, parts) for start, stop in ranges]

    @property
    def supports_read_many(self) -> bool:
        return True

    def read_many(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Buffer | StorageError]:
        from fsspec.asyn import get_loop

        with self._translated(parts[0][0]):
            get, store = client().get_range_async, self._open()

            async def one(key: str, start: int, stop: int) -> Any:
                return await get(store, self._path(key), start=start, end=stop)

            found = run(
                get_loop(), partial(gather_results, [partial(one, *part) for part in parts])
            )
        if any(isinstance(part, Exception) and ignores_ranges(part) for part in found):
            return super().read_many(parts)
        return [self._part(key, part) for (key, _, _), part in zip(parts, found)]

    def _part(self, key: str, found: Any) -> Buffer | StorageError:
        if isinstance(found, Exception) and begins_beyond_end(found):
            return b""
        try:
            with self._translated(key):
                if isinstance(found, BaseException):
                    raise found
        except StorageError as error:
            return error
        return memoryview(found)

    def _one_by_one(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        with ThreadPoolExecutor(min(READERS, len(ranges))) as pool:
            return list(pool.map(lambda part: memoryview(self.read_range(key, *part)), ranges))

    def download(self, key: str, path: Path) -> None:
        with self._translated(key):
            found = client().get(self._open(), self._path(key))
            with path.open("wb", buffering=0) as file:
                preallocate(file, found.meta["size"])
                write_chunks(file, found.stream(min_chunk_size=_CHUNK))

    def stat(self, key: str) -> ObjectInfo:
        with self._translated(key):
            return _info(key, client().head(self._open(), self._path(key)))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        with self._translated(folder):
            below = self._path(folder) if folder else self._prefix.rstrip("/")
            found = client().list(self._open(), prefix=below or None).collect()
            objects = [
                _info(meta["path"].removeprefix(self._prefix), meta)
                for meta in found
                if meta["path"].startswith(self._prefix)
            ]
        objects.sort(key=lambda o: o.key)
        folders = {o.key[:at] for o in objects for at in _slashes(o.key)}
        return (
            o
            for o in objects
            # The directory marker "a/b/" is listed as "a/b".
            if o.key.startswith(prefix) and not (o.size == 0 and o.key in folders)
        )

    # -- writing ------------------------------------------------------------------

    def write(self, key: str, data: Buffer) -> None:
        with self._translated(key):
            client().put(self._open(), self._path(key), bytes(data))

    def upload(self, path: Path, key: str) -> None:
        if not path.is_file():
            raise NotFound(f"{path} does not exist: it was to be uploaded to {self.url_of(key)}")
        with self._translated(key):
            client().put(self._open(), self._path(key), path)

    def delete(self, key: str) -> None:
        with self._translated(key):
            try:
                client().delete(self._open(), self._path(key))
            except FileNotFoundError:
                return


def settings(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return options under obstore's names, updated with the user's `config`."""
    renamed = {theirs: given[ours] for ours, theirs in names.items() if ours in given}
    return {**renamed, **given.get("config", {})}


def _slashes(key: str) -> Iterator[int]:
    return (at for at, character in enumerate(key) if character == "/")


def _merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(part for part in ranges if part[0] < part[1]):
        if merged and start <= merged[-1][1] + GAP:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _cut(start: int, stop: int, starts: Sequence[int], parts: Sequence[memoryview]) -> Buffer:
    if stop <= start:
        return b""
    part = bisect_right(starts, start) - 1
    return parts[part][start - starts[part] : stop - starts[part]]


def _after_fork() -> None:
    # An inherited store must be neither used nor collected here: see `client`.
    global _opening, _live
    for storage in list(_live):
        leave_to_parent(storage._store)  # noqa: SLF001 - our own class
        storage._store = None  # noqa: SLF001
    _opening, _live = threading.Lock(), weakref.WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _info(key: str, meta: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(
        key, int(meta["size"]), str(meta.get("e_tag") or meta.get("last_modified", ""))
    )
