"""Storage of shards that consist of many files."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from streamplug.cache import read_scan_file
from streamplug.errors import CorruptShardError, NotFound, StorageError, StreamplugError
from streamplug.index import Index
from streamplug.interfaces import Storage
from streamplug.plugin import local_path
from streamplug.transfer import StorageWrapper, map_threads
from streamplug.types import Buffer
from streamplug_files.manifest import MANIFEST_ROLE, MULTIFILE_PREFIX, ShardManifest

V = TypeVar("V")
_MAX_FILES_IN_FLIGHT = 16  # of one shard
_MAX_CACHED_MANIFESTS = 1024


class _ShardFiles:
    """The files of a shard: names below the root, and begin and end offsets in the data file."""

    def __init__(self, folder: str, manifest: ShardManifest) -> None:
        """Raise CorruptShardError if a name in the manifest is outside of the data set."""
        self.names = [folder + manifest.safe_name(number) for number in range(len(manifest))]
        self.sizes: list[int] = manifest.sizes.tolist()
        self.ends: list[int] = manifest.ends.tolist()
        self.begins = [end - size for end, size in zip(self.ends, self.sizes)]
        self.total = sum(self.sizes)

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (file number, start, stop) of the parts of files in a range of the data file."""
        number, stop = bisect_right(self.ends, start), min(stop, self.total)
        while start < stop:
            begin, end = self.begins[number], min(self.ends[number], stop)
            if start < end:  # else it is empty
                yield number, start - begin, end - begin
            start, number = end, number + 1


class MultifileStorage(StorageWrapper):
    """A storage that also serves multi-file shards as single data files."""

    def __init__(self, storage: Storage, index: Index, derived: Path | None) -> None:
        super().__init__(storage)
        self._index, self._derived = index, derived
        self._root = local_path(storage.url)
        self._files = lru_cache(_MAX_CACHED_MANIFESTS)(self._load_files)

    def __reduce__(self) -> tuple[Any, ...]:
        return MultifileStorage, (self._storage, self._index, self._derived)

    @cached_property
    def _shards(self) -> dict[str, int]:
        names = self._index.tables["raw_data"].basenames
        return {names[shard]: shard for shard in range(len(self._index))}

    def _load_files(self, key: str) -> _ShardFiles | None:
        """Return the files of a multi-file shard; None for any other key."""
        folder, prefix, _ = key.rpartition(MULTIFILE_PREFIX)
        shard = self._shards.get(key) if prefix else None
        if shard is None:
            return None
        info = self._index.shard(shard)
        manifest = info.files[MANIFEST_ROLE].raw
        data = read_scan_file(self._derived, manifest)
        if data is None:
            data = self._storage.read(manifest.basename)
        size = info.files["data"].raw.bytes
        return _ShardFiles(folder, ShardManifest.unpack(data, info.samples, size))

    def url_of(self, key: str) -> str:
        try:
            files = self._files(key)
        except (StreamplugError, OSError):  # reading reports it
            files = None
        if files is None or not files.names:
            return self._storage.url_of(key)
        first, more = self._storage.url_of(files.names[0]), len(files.names) - 1
        return f"{first} and the {more} files after it" if more else first

    def read(self, key: str) -> bytes:
        files = self._files(key)
        return self._storage.read(key) if files is None else self.read_range(key, 0, files.total)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return bytes(self.read_ranges(key, [(start, stop)])[0])

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        files = self._files(key)
        if files is None:
            return self._storage.read_ranges(key, ranges)
        parts = [list(files.parts(start, stop)) for start, stop in ranges]
        distinct = list(dict.fromkeys(part for range_ in parts for part in range_))
        data = dict(zip(distinct, self._map(lambda part: self._read(files, *part), distinct)))
        return [data[p[0]] if len(p) == 1 else b"".join(data[part] for part in p) for p in parts]

    def read_version(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str = ""
    ) -> tuple[Sequence[Buffer], str]:
        files = self._files(key)
        if files is None:
            return self._storage.read_version(key, ranges, version)
        if len(files.names) != 1:
            return [], ""  # files have no version in common; `download` reads each at once
        name, size = files.names[0], files.total
        # At its end, one byte more, as in `_read`.
        past = [(start, stop + (stop == size)) for start, stop in ranges]
        parts, version = self._storage.read_version(name, past, version)
        if any(len(part) > stop - start for (start, stop), part in zip(ranges, parts)):
            raise _changed_error(self._storage.url_of(name), size)
        return parts, version

    def _map(self, function: Callable[[V], bytes], items: Sequence[V]) -> Iterator[bytes]:
        if self._root is not None:  # a disk read takes less time than a thread start
            return map(function, items)
        return map_threads(function, items, _MAX_FILES_IN_FLIGHT)

    def _read(self, files: _ShardFiles, number: int, start: int, stop: int) -> bytes:
        """Read a part of a file; at its end, request one byte more to detect a file that has grown."""
        name, size = files.names[number], files.sizes[number]
        past = stop + (stop == size)
        if self._root is not None:
            data = _read_local(f"{self._root}/{name}", start, past)
        else:
            data = self._storage.read_range(name, start, past)
        if len(data) != stop - start:
            raise _changed_error(self._storage.url_of(name), size)
        return data

    def serves_ranges(self, key: str) -> bool:
        files = self._files(key)
        if files is None:
            return self._storage.serves_ranges(key)
        return not files.names or self._storage.serves_ranges(files.names[0])

    def download(self, key: str, path: Path) -> None:
        files = self._files(key)
        if files is None:
            self._storage.download(key, path)
            return
        if len(files.names) == 1:
            self._storage.download(files.names[0], path)
            if path.stat().st_size != files.total:
                raise _changed_error(self._storage.url_of(files.names[0]), files.total)
            return
        numbers = [number for number, size in enumerate(files.sizes) if size]
        with path.open("wb") as target:
            for data in self._map(
                lambda number: self._read(files, number, 0, files.sizes[number]), numbers
            ):
                target.write(data)


def _read_local(path: str, start: int, stop: int) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(file, stop - start, start)
            while len(data) < stop - start and (
                more := os.pread(file, stop - start - len(data), start + len(data))
            ):
                data += more  # one pread returns 2 GiB at most
            return data
        finally:
            os.close(file)
    except FileNotFoundError as error:
        raise NotFound(f"{path}: it does not exist any more") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _changed_error(url: str, size: int) -> CorruptShardError:
    return CorruptShardError(
        f"{url}: it does not have the {size} bytes any more that it had when it was listed; open the "
        "data set anew, with another local= if there is one, or write its index.json anew"
    )
