"""Writing the files of a finished shard: hashed, compressed, renamed into place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamplug.index.hashes import digests
from streamplug.interfaces import Compression
from streamplug.plugin_kit.staging import stage_file
from streamplug.transfer.disk_errors import map_output_errors
from streamplug.types import Buffer, FileInfo

_WRITE_BUFFER_BYTES = 1 << 18  # rows of a few pages, written one by one, take three times as long


def write_shard_file(
    folder: Path,
    basename: str,
    content: Sequence[Buffer],
    hashes: Sequence[str],
    compression: Compression | None,
) -> tuple[FileInfo, FileInfo | None]:
    """Write a file, compressed if there is a compression, and describe it for the index.

    Args:
        folder: The directory to write to.
        basename: Name of the raw file; the compression's suffix is appended to that of the compressed one.
        content: The raw file, in pieces.
        hashes: Names of the digests of the raw and the compressed file.
        compression: With one, only the compressed file is written.

    Returns:
        The raw file, and the compressed one if any.
    """
    size = sum(len(piece) for piece in content)
    raw = FileInfo(basename, size, digests(hashes, content))
    stored = None
    if compression is not None:
        compressed = compression.compress(b"".join(content))
        name = f"{basename}.{compression.suffix}" if compression.suffix else basename
        stored = FileInfo(name, len(compressed), digests(hashes, [compressed]))
        content = [compressed]
    target = folder / (stored or raw).basename
    with (
        map_output_errors(target, (stored or raw).bytes),
        stage_file(target) as part,
        part.open("wb", _WRITE_BUFFER_BYTES) as stream,
    ):
        stream.writelines(content)
    return raw, stored
