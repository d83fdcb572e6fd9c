"""Sizes, inodes and decompression of shard files."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import numpy as np

from streamplug.errors import CorruptShardError, DataError, NotFound, PluginError, prefix_errors
from streamplug.index import Index
from streamplug.interfaces import Compression, ShardFile, ShardInfo, ShardRepaired
from streamplug.plugin import make
from streamplug.transfer import emit, open_cancellable, scan_file_path, size_error

_LOG = logging.getLogger("streamplug.cache")


def is_compressed(file: ShardFile) -> bool:
    """Return whether a shard file is stored in compressed form."""
    return file.zip is not None and file.zip.basename != file.raw.basename


def has_zip(directory: Path, file: ShardFile) -> bool:
    """Return whether a directory has the complete compressed file."""
    try:
        return (
            file.zip is not None
            and is_compressed(file)
            and (directory / file.zip.basename).stat().st_size == file.zip.bytes
        )
    except FileNotFoundError:
        return False


def is_complete(path: Path, file: ShardFile) -> bool:
    """Return whether a raw file exists with its full size."""
    try:
        return path.stat().st_size == file.raw.bytes
    except FileNotFoundError:
        return False


def report_wrong_size(path: Path, file: ShardFile) -> None:
    """Report a raw file that is there with another size, which will be downloaded or decompressed again."""
    with suppress(FileNotFoundError):
        size = path.stat().st_size
        _LOG.warning(
            "%s has %d bytes, the index says %d: fetching it again", path, size, file.raw.bytes
        )
        emit(ShardRepaired(str(path)))


def cached_bytes(file: ShardFile) -> int:
    """Return the size of a file in the cache, raw plus compressed."""
    return file.raw.bytes + (file.zip.bytes if file.zip is not None else 0)


def cached_files(shard: ShardInfo, derived: Path | None) -> dict[str, ShardFile]:
    """Return the files of a shard by role, without those that a scan wrote to `derived`."""
    files = shard.files.items()
    return {role: file for role, file in files if not scan_file_path(derived, file.raw)}


def largest_shard(index: Index) -> tuple[int, int]:
    """Return the size in bytes and the number of the largest shard."""
    sizes = np.zeros(len(index), np.int64)
    for table in index.tables.values():
        sizes += table.bytes
    shard = int(sizes.argmax())
    return int(sizes[shard]), shard


def inode(path: Path) -> int | None:
    """Return the inode of a file; None if it does not exist."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def missing_file_error(path: Path, size: int) -> CorruptShardError | NotFound:
    """Return the error for a missing or truncated file of a data set that is read in place."""
    if path.exists():
        return size_error(path, str(path), size)
    return NotFound(f"{path} does not exist; pass remote= if the set lies elsewhere")


def decompress_file(stored: Path, raw: Path, spec: str | None, size: int, where: str) -> None:
    """Decompress `stored` to `raw`, of at most `size` bytes; errors name the file `where`."""
    with prefix_errors(where, PluginError):
        codec: Compression = make("compression", spec or "none")
    with open_cancellable(stored) as source, raw.open("wb") as target:
        try:
            codec.decompress_stream(source, target, max_size=size)
        except DataError as error:
            raise type(error)(f"{where}: {error}; write or copy it again") from error
