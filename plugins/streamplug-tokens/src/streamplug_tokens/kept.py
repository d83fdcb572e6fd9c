"""Keeps what was counted in files beside a cache, so that it is counted once on a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from xxhash import xxh3_128, xxh64

from streamplug.cache.staging import arriving
from streamplug.cache.user_cache import source_cache_dir
from streamplug.errors import InvalidIndexError
from streamplug.index.mapped import MappedFile
from streamplug.plugin.location import local_path
from streamplug.session.open_stream import OpenStream
from streamplug.transfer.disk_errors import local_errors
from streamplug.transfer.file_lock import STATE_DIR, cache_lock, file_lock
from streamplug.types import Int64

_MARK = b"streamplug.kept1"
_DIGEST = 16
_HEAD = len(_MARK) + _DIGEST
_HASHED = 64
"""Shards of which the digests are part of what a data set is known by."""


class Kept:
    """Arrays that were worked out of one stream.

    Attributes:
        directory: Where they are.
    """

    def __init__(self, opened: OpenStream) -> None:
        """Find the place of a stream's arrays: its cache, or else one in the user's cache directory."""
        cache = opened.stream.cache
        self.directory = source_cache_dir(opened.stream.url) if cache is None else cache[0]
        self._identity = _identity(opened)

    def path(self, what: str) -> Path:
        """Return the file of an array."""
        name = xxh3_128(f"{self._identity} {what}".encode()).hexdigest()
        return self.directory / STATE_DIR / "tokens" / name

    def array(self, what: str, make: Callable[[], Int64]) -> Int64:
        """Return an array, mapped from its file, which is made if it is not there or damaged.

        Args:
            what: Names the array, and all that it depends on besides the stream.
            make: Works it out.

        Raises:
            StorageError: If the file cannot be written.
        """
        path = self.path(what)
        with local_errors(path):
            found = _mapped(path)
            if found is None:
                # Not a lock of the cache: names share these, and making it may fetch shards.
                with file_lock(path.with_name(f"{path.name}.lock"), "to count tokens"):
                    found = _mapped(path)  # another process may have been quicker
                    if found is None:
                        self._write(path, make())
                        found = _mapped(path)
        if found is None:
            raise InvalidIndexError(f"{path} is not what was written just now; see to the disk")
        return found

    def _write(self, path: Path, array: Int64) -> None:
        data = np.ascontiguousarray(array, "<i8").data.cast("B") if len(array) else b""
        with (
            cache_lock(self.directory, path.name),
            arriving(self.directory, path.name, path) as part,
            part.open("wb") as file,
        ):
            file.write(_MARK + xxh3_128(data).digest())
            file.write(data)


def _mapped(path: Path) -> Int64 | None:
    """Return the array of a file, or None if there is no such file, whole."""
    try:
        file = MappedFile(path)
    except (FileNotFoundError, InvalidIndexError):
        return None
    head, body = bytes(file.data[:_HEAD]), file.data[_HEAD:]
    if head != _MARK + xxh3_128(body).digest():
        return None
    return file.array(head, _HEAD, "<i8", (len(body) // 8,))


def _identity(opened: OpenStream) -> str:
    """Return what tells a data set from others, and from what lay at its place before."""
    index, digest = opened.index, xxh64(opened.stream.url.encode())
    path = local_path(opened.where)
    if path is not None:  # that may be written over, where a cache would be refused
        digest.update(repr(path.stat().st_mtime_ns).encode())
    digest.update(np.ascontiguousarray(index.starts, "<i8").data)
    for key, table in sorted(index.tables.items()):
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(table.bytes, "<i8").data)
        for shard in np.unique(np.linspace(0, max(len(index) - 1, 0), _HASHED, dtype=int)):
            if len(index):
                digest.update(repr(sorted(table.hashes[shard].items())).encode())
    return digest.hexdigest()
