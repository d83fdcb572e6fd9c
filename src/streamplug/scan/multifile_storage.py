"""Storage of shards that consist of many files."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from streamplug.errors import CorruptShardError, NotFound, StorageError, StreamplugError
from streamplug.index import Index
from streamplug.interfaces import MultiFileFormat, Storage
from streamplug.plugin.location import local_path
from streamplug.plugin_kit.manifest import MANIFEST_ROLE, ShardManifest
from streamplug.scan.multifile_shards import MULTIFILE_PREFIX
from streamplug.transfer.delegating_storage import DelegatingStorage
from streamplug.transfer.disk_errors import map_disk_errors
from streamplug.transfer.pool import run_jobs
from streamplug.types import Buffer

_AT_ONCE = 16  # files of one shard read concurrently
_KEPT = 1024  # manifests cached in memory


def wrap_multifile(storage: Storage, index: Index, derived: Path | None) -> Storage:
    """Return `storage`, wrapped if the index has multi-file shards; `derived` is the scan directory."""
    if any(isinstance(schema.format, MultiFileFormat) for schema in index.schemas):
        return _MultifileStorage(storage, index, derived)
    return storage


class _Files:
    """The files of a shard: names below the root, and begin and end offsets in the data file."""

    def __init__(self, folder: str, bundle: ShardManifest) -> None:
        """Raise CorruptShardError if a name in the manifest is outside of the data set."""
        self.names = [folder + bundle.safe_name(number) for number in range(len(bundle))]
        self.ends: list[int] = bundle.ends.tolist()
        self.begins: list[int] = [0, *self.ends][: len(self.ends)]

    def size(self, number: int) -> int:
        size: int = self.ends[number] - self.begins[number]
        return size

    def parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (file number, start, stop) of the parts of files in a range of the data file."""
        number = bisect_right(self.ends, start)
        while start < stop:
            begin, end = self.begins[number], min(self.ends[number], stop)
            if start < end:  # else it is empty
                yield number, start - begin, end - begin
            start, number = end, number + 1


class _MultifileStorage(DelegatingStorage):
    """A storage that also serves multi-file shards as single data files."""

    def __init__(self, storage: Storage, index: Index, derived: Path | None) -> None:
        super().__init__(storage)
        self._index = index
        self._derived, self._near = derived, local_path(storage.url)
        self._forget()

    def _forget(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, _Files] = OrderedDict()
        self._shards: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_kept": None, "_shards": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _files(self, key: str) -> _Files | None:
        """Return the files of a multi-file shard; None for any other key."""
        found = self._kept.get(key)
        if found is None:
            folder, inside, _ = key.rpartition(MULTIFILE_PREFIX)
            shard = self._shard(key) if inside else None
            if shard is None:
                return None
            found = _Files(folder, self._bundle(shard))
            with self._lock:
                self._kept[key] = found
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return found

    def _shard(self, key: str) -> int | None:
        if self._shards is None:
            names = self._index.tables["raw_data"].basenames
            self._shards = {names[number]: number for number in range(len(self._index))}
        return self._shards.get(key)

    def _bundle(self, shard: int) -> ShardManifest:
        info = self._index.shard(shard)
        name = info.files[MANIFEST_ROLE].raw.basename
        made = None if self._derived is None else self._derived / name
        with map_disk_errors(made or Path()):
            data = made.read_bytes() if made and made.exists() else self._storage.read(name)
        return ShardManifest.unpack(data, info.samples, info.files["data"].raw.bytes)

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
        if files is None:
            return self._storage.read(key)
        return self.read_range(key, 0, files.ends[-1] if files.ends else 0)

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return bytes(self.read_ranges(key, [(start, stop)])[0])

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        files = self._files(key)
        if files is None:
            return self._storage.read_ranges(key, ranges)
        parts = [
            list(files.parts(start, min(stop, files.ends[-1] if files.ends else 0)))
            for start, stop in ranges
        ]
        wanted = list(dict.fromkeys(part for each in parts for part in each))
        read: dict[tuple[int, int, int], bytes] = {}

        def fetch(part: tuple[int, int, int]) -> None:
            read[part] = self._part(files, *part)

        _each(fetch, wanted, near=self._near is not None)
        return [read[p[0]] if len(p) == 1 else b"".join(map(read.__getitem__, p)) for p in parts]

    def _part(self, files: _Files, number: int, start: int, stop: int) -> bytes:
        """Read a part of a file; at its end, request one byte more to detect a file that has grown."""
        name, size = files.names[number], files.size(number)
        past = stop + (stop == size)
        if self._near is not None:
            data = _read_near(f"{self._near}/{name}", start, past)
        else:
            data = self._storage.read_range(name, start, past)
        if len(data) != stop - start:
            raise CorruptShardError(_changed(self._storage.url_of(name), size))
        return data

    def serves_ranges(self, key: str) -> bool:
        files = self._files(key)
        return self._storage.serves_ranges(key if files is None else files.names[0])

    def download(self, key: str, path: Path) -> None:
        files = self._files(key)
        if files is None:
            self._storage.download(key, path)
        elif len(files.names) == 1:
            self._storage.download(files.names[0], path)
            if path.stat().st_size != files.size(0):
                raise CorruptShardError(
                    _changed(self._storage.url_of(files.names[0]), files.size(0))
                )
        else:
            self._download(files, path)

    def _download(self, files: _Files, path: Path) -> None:
        with path.open("wb") as target:
            file = target.fileno()

            def fetch(number: int) -> None:
                data = memoryview(self._part(files, number, 0, files.size(number)))
                at = files.begins[number]
                while data:  # a write may be short, such as on a full disk
                    done = os.pwrite(file, data, at)
                    data, at = data[done:], at + done

            full = [number for number in range(len(files.names)) if files.size(number)]
            _each(fetch, full, near=self._near is not None)


def _each(work: Callable[[Any], None], items: Sequence[Any], *, near: bool) -> None:
    if near or len(items) < 2:  # a disk read takes less time than a thread start
        for item in items:
            work(item)
    else:
        run_jobs([partial(work, item) for item in items], _AT_ONCE)


def _read_near(path: str, start: int, stop: int) -> bytes:
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
        raise NotFound(f"{path}: it is not there any more") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _changed(url: str, size: int) -> str:
    return (
        f"{url}: it does not have the {size} bytes any more that it had when it was listed; open the "
        "data set anew, with another local= if there is one, or write its index.json anew"
    )
