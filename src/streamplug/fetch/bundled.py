"""Reads shards that are made of many files: fetches these, several at once."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from streamplug.errors import CorruptShardError, NotFound, StorageError, StreamplugError
from streamplug.fetch.bundling import BUNDLES
from streamplug.fetch.files import local_errors
from streamplug.fetch.workers import run_all
from streamplug.index import Index
from streamplug.interfaces import Storage
from streamplug.interfaces.bundle import BUNDLE_ROLE, Bundle
from streamplug.plugin.location import local_path
from streamplug.types import Buffer, ObjectInfo

_AT_ONCE = 16
"""Files of one shard that are fetched at once."""
_KEPT = 256
"""Lists of files that are kept in memory."""


def source_of(storage: Storage, index: Index, derived: Path | None) -> Storage:
    """Return what the shards of an index are read from.

    Args:
        storage: Where the data set lies.
        index: Describes it.
        derived: The directory of files that were made from others, if there are any.
    """
    if any(schema.format.bundles for schema in index.schemas):
        return _Bundled(storage, index, derived)
    return storage


class _Bundled(Storage):
    """A storage that has the data files of such shards, too."""

    def __init__(self, storage: Storage, index: Index, derived: Path | None) -> None:
        super().__init__(storage.url)
        self._storage, self._index = storage, index
        self._derived, self._near = derived, local_path(storage.url)
        self._forget()

    def _forget(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[str, Bundle] = OrderedDict()
        self._shards: dict[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_kept": None, "_shards": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # -- which files ----------------------------------------------------------------

    def _bundle(self, key: str) -> tuple[str, Bundle] | None:
        """Return the files of a shard and the folder that they are below; None if it is an object."""
        folder, found, _ = key.rpartition(BUNDLES)
        shard = self._shard(key) if found else None
        if shard is None:
            return None
        bundle = self._kept.get(key)
        if bundle is None:
            info = self._index.shard(shard)
            files = info.files[BUNDLE_ROLE].raw.basename
            made = None if self._derived is None else self._derived / files
            with local_errors(made or Path()):
                data = made.read_bytes() if made and made.exists() else self._storage.read(files)
            bundle = Bundle.unpack(data, info.samples, info.files["data"].raw.bytes)
            with self._lock:
                self._kept[key] = bundle
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return folder, bundle

    def _shard(self, key: str) -> int | None:
        if self._shards is None:
            names = self._index.tables["raw_data"].basenames
            self._shards = {names[number]: number for number in range(len(self._index))}
        return self._shards.get(key)

    def url_of(self, key: str) -> str:
        try:
            found = self._bundle(key)
        except (StreamplugError, OSError):  # whoever reads it is told
            found = None
        if found is None or not len(found[1]):
            return self._storage.url_of(key)
        folder, bundle = found
        first, more = self._storage.url_of(folder + bundle.name(0)), len(bundle) - 1
        return f"{first} and the {more} files after it" if more else first

    # -- reading ----------------------------------------------------------------------

    def read(self, key: str) -> bytes:
        found = self._bundle(key)
        if found is None:
            return self._storage.read(key)
        return self.read_range(key, 0, int(found[1].sizes.sum()))

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return bytes(self.read_ranges(key, [(start, stop)])[0])

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Sequence[Buffer]:
        found = self._bundle(key)
        if found is None:
            return self._storage.read_ranges(key, ranges)
        folder, bundle = found
        parts = [_parts(bundle, start, stop) for start, stop in ranges]
        read: dict[tuple[int, int, int], bytes] = {}

        def fetch(part: tuple[int, int, int]) -> None:
            read[part] = self._part(folder, bundle, *part)

        _each(fetch, list(dict.fromkeys(part for each in parts for part in each)), self._near)
        return [read[p[0]] if len(p) == 1 else b"".join(map(read.__getitem__, p)) for p in parts]

    def _part(self, folder: str, bundle: Bundle, number: int, start: int, stop: int) -> bytes:
        """Return a part of a file, of which the last byte is asked for along with what should not follow."""
        name, size = folder + bundle.safe_name(number), int(bundle.sizes[number])
        last = stop == size
        if self._near is not None:
            data = _read_near(self._near / name, start, stop + last)
        else:
            data = self._storage.read_range(name, start, stop + last)
        if len(data) != stop - start:
            raise CorruptShardError(_changed(self._storage.url_of(name), size))
        return data

    def serves_ranges(self, key: str) -> bool:
        found = self._bundle(key)
        if found is None:
            return self._storage.serves_ranges(key)
        return self._storage.serves_ranges(found[0] + found[1].name(0))

    def download(self, key: str, path: Path) -> None:
        found = self._bundle(key)
        if found is None:
            self._storage.download(key, path)
            return
        folder, bundle = found
        if len(bundle) == 1:
            name, size = folder + bundle.safe_name(0), int(bundle.sizes[0])
            self._storage.download(name, path)
            if path.stat().st_size != size:
                raise CorruptShardError(_changed(self._storage.url_of(name), size))
            return
        begins = bundle.ends - bundle.sizes
        with path.open("wb") as target:
            file = target.fileno()

            def fetch(number: int) -> None:
                data = self._part(folder, bundle, number, 0, int(bundle.sizes[number]))
                os.pwrite(file, data, int(begins[number]))

            _each(fetch, np.flatnonzero(bundle.sizes).tolist(), self._near)

    # -- what shards have no part in --------------------------------------------------

    def stat(self, key: str) -> ObjectInfo:
        return self._storage.stat(key)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._storage.list(prefix)

    def write(self, key: str, data: Buffer) -> None:
        self._storage.write(key, data)

    def upload(self, path: Path, key: str) -> None:
        self._storage.upload(path, key)

    def delete(self, key: str) -> None:
        self._storage.delete(key)

    def close(self) -> None:
        self._storage.close()


def _parts(bundle: Bundle, start: int, stop: int) -> list[tuple[int, int, int]]:
    """Return which parts of which files lie in a range of the data file: number, begin, end."""
    ends = bundle.ends
    first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
    found = []
    for number in range(first, min(last, len(bundle) - 1) + 1):
        end, size = int(ends[number]), int(bundle.sizes[number])
        begin = end - size
        if size and start < stop:
            found.append((number, max(start - begin, 0), min(stop, end) - begin))
    return found


def _each(work: Callable[[Any], None], items: Sequence[Any], near: Path | None) -> None:
    if near is not None or len(items) < 2:  # a disk is read sooner than threads are begun
        for item in items:
            work(item)
    else:
        run_all([partial(work, item) for item in items], _AT_ONCE)


def _read_near(path: Path, start: int, stop: int) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            if start:
                file.seek(start)
            data = file.read(stop - start) or b""
            while len(data) < stop - start and (more := file.read(stop - start - len(data))):
                data += more  # a single read gives 2 GiB at most
            return data
    except FileNotFoundError as error:
        raise NotFound(f"{path}: it is not there any more") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _changed(url: str, size: int) -> str:
    return (
        f"{url}: it does not have the {size} bytes any more that it had when it was listed; open the "
        "data set anew, with another local= if there is one, or write its index.json anew"
    )
