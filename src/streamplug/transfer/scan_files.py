"""Files that a scan wrote: its index, and those of each shard beside its data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import xxhash

from streamplug.errors import CorruptShardError
from streamplug.types import FileInfo

INDEX_SUFFIX = ".index"


def add_digest(content: bytes) -> bytes:
    """Return content after a line with its digest."""
    return _digest(content).encode() + b"\n" + content


def read_with_digest(path: Path) -> bytes | None:
    """Return the content of a file written with `add_digest`; None if it cannot be read or is damaged."""
    try:
        digest, _, content = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if digest == _digest(content).encode() else None


def find_scan_file(folder: Path | None, file: FileInfo) -> Path | None:
    """Return the path of a file that a scan wrote to `folder`; None for a file of the data set.

    `folder` is None if the data set has an index.

    Raises:
        CorruptShardError: If it is missing or damaged. The next start scans the files again.
    """
    # A scan writes digests of its own files, and knows none of the data set.
    if folder is None or not file.hashes:
        return None
    path = folder / file.basename
    with suppress(FileNotFoundError):
        if _digest(path.read_bytes()) == file.hashes["xxh3_64"]:
            return path
    with suppress(OSError):  # of a directory that cannot be written to
        for index in folder.glob(f"*{INDEX_SUFFIX}"):
            index.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    raise CorruptShardError(
        f"{path}, which the scan of this data set wrote, is missing or damaged; open the data set again, "
        "which scans its files again"
    )


def _digest(content: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(content)
