"""Names of the files that a scan of data without an index leaves in the cache, which reading needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import xxhash

from streamplug.errors import CorruptShardError
from streamplug.transfer import map_disk_errors
from streamplug.types import FileInfo

SCAN_INDEX_SUFFIX = ".index"


def scan_file_path(folder: Path | None, file: FileInfo) -> Path | None:
    """Return the path of a file that a scan wrote to `folder`; None for a file of the data set.

    `folder` is None if there was no scan.
    """
    # A scan writes digests of its own files, and knows none of the data set.
    return None if folder is None or not file.hashes else folder / file.basename


def find_scan_file(folder: Path | None, file: FileInfo, verified: set[str]) -> Path | None:
    """Return what `scan_file_path` does; check a file whose name is not among the `verified` ones first.

    Raises:
        CorruptShardError: See `read_scan_file`.
    """
    path = scan_file_path(folder, file)
    if path is not None and not (file.basename in verified and path.exists()):
        read_scan_file(folder, file)
        verified.add(file.basename)
    return path


def read_scan_file(folder: Path | None, file: FileInfo) -> bytes | None:
    """Return the content of a file that a scan wrote to `folder`; None for a file of the data set.

    Raises:
        CorruptShardError: If it is missing or damaged. The indexes that name it are removed, so that the next
            start scans the files again.
    """
    path = scan_file_path(folder, file)
    if folder is None or path is None:
        return None
    with map_disk_errors(path), suppress(FileNotFoundError):
        content = path.read_bytes()
        if _digest(content) == file.hashes["xxh3_64"]:
            return content
    with suppress(OSError):  # of a directory that cannot be written to
        for index in folder.glob(f"*{SCAN_INDEX_SUFFIX}"):
            if file.basename.encode() in index.read_bytes():
                index.unlink(missing_ok=True)
    raise CorruptShardError(
        f"{path}, which the scan of this data set wrote, is missing or damaged; open the data set again "
        "while its files can be reached, which scans them again"
    )


def _digest(content: bytes) -> str:
    return xxhash.xxh3_64_hexdigest(content)
