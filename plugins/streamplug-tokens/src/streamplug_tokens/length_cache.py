"""Files with document lengths and packings, computed once on a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from xxhash import xxh3_128, xxh64

from streamplug.cache import source_cache_dir, stage_cache_file
from streamplug.errors import InvalidIndexError
from streamplug.plugin import local_path
from streamplug.source import OpenStream
from streamplug.transfer import STATE_DIR, cache_lock, file_lock, map_disk_errors
from streamplug.types import Int64
from streamplug_tokens.memory_map import MappedFile

_MAGIC = b"streamplug.lens1"
_DIGEST_BYTES = 16
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES
_HASHED_SHARDS = 64
"""Shards whose checksums are part of the identity of a data set."""


class ArrayCache:
    """Cached arrays of one stream.

    Attributes:
        directory: The stream's cache, or else a directory in the user's cache.
    """

    def __init__(self, opened: OpenStream) -> None:
        cache = opened.stream.cache
        self.directory = source_cache_dir(opened.stream.url) if cache is None else cache[0]
        self._identity = _identity(opened)

    def path(self, key: str) -> Path:
        """Return the file of an array."""
        name = xxh3_128(f"{self._identity} {key}".encode()).hexdigest()
        return self.directory / STATE_DIR / "tokens" / name

    def array(self, key: str, compute: Callable[[], Int64]) -> Int64:
        """Return an array, memory-mapped from its file, which is written if it is missing or damaged.

        Args:
            key: Name of the array, with all that it depends on besides the stream.
            compute: Returns the array.

        Raises:
            StorageError: If the file cannot be written.
        """
        path = self.path(key)
        with map_disk_errors(path):
            array = _map_array(path)
            if array is None:
                # No cache lock: file names share those, and `compute` may fetch shards.
                with file_lock(path.with_name(f"{path.name}.lock"), "to count tokens"):
                    array = _map_array(path)  # another process may have written it
                    if array is None:
                        self._write(path, compute())
                        array = _map_array(path)
        if array is None:
            raise InvalidIndexError(f"{path} differs from what was just written: check the disk")
        return array

    def _write(self, path: Path, array: Int64) -> None:
        data = np.ascontiguousarray(array, "<i8").data.cast("B") if len(array) else b""
        with (
            cache_lock(self.directory, path.name),
            stage_cache_file(self.directory, path.name, path) as part,
            part.open("wb") as file,
        ):
            file.write(_MAGIC + xxh3_128(data).digest())
            file.write(data)


def _map_array(path: Path) -> Int64 | None:
    """Return the array of a file, or None if the file is missing or damaged."""
    try:
        file = MappedFile(path)
    except (FileNotFoundError, InvalidIndexError):
        return None
    header, body = bytes(file.data[:_HEADER_BYTES]), file.data[_HEADER_BYTES:]
    if header != _MAGIC + xxh3_128(body).digest():
        return None
    return file.array(header, _HEADER_BYTES, "<i8", (len(body) // 8,))


def _identity(opened: OpenStream) -> str:
    """Return a digest that differs between data sets, and between versions of one data set."""
    index, digest = opened.index, xxh64(opened.stream.url.encode(errors="surrogateescape"))
    path = local_path(opened.where)
    if opened.version:
        digest.update(f"{opened.version} {index.digest}".encode())
    elif path is not None:  # it may be overwritten, which a cache would refuse
        digest.update(repr(path.stat().st_mtime_ns).encode())
        if index.versions and opened.stream.location.in_place:  # files that were scanned
            digest.update(index.versions.encode())
    digest.update(np.ascontiguousarray(index.starts, "<i8").data)
    for key, table in sorted(index.tables.items()):
        digest.update(key.encode())
        digest.update(np.ascontiguousarray(table.bytes, "<i8").data)
        for shard in np.unique(np.linspace(0, max(len(index) - 1, 0), _HASHED_SHARDS, dtype=int)):
            if len(index):
                digest.update(repr(sorted(table.hashes[shard].items())).encode())
    return digest.hexdigest()
