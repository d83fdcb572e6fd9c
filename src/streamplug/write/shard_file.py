"""Writes the files of one finished shard: hashed, compressed, whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamplug.index.hashes import digests
from streamplug.interfaces import Compression
from streamplug.plugin_kit.staging import stage_file
from streamplug.transfer.disk_errors import map_output_errors
from streamplug.types import Buffer, FileInfo

_AT_ONCE = 1 << 18
"""Bytes handed to the system at once: rows of some pages one by one take it three times as long."""


def write_shard_file(
    folder: Path,
    basename: str,
    content: Sequence[Buffer],
    hashes: Sequence[str],
    compression: Compression | None,
) -> tuple[FileInfo, FileInfo | None]:
    """Write a file, compressed if so asked, and describe it for the index.

    Args:
        folder: Where to.
        basename: Name of the raw file; the compressed one gets the compression's ending.
        content: The raw file, in pieces.
        hashes: Names of the digests to take, of the raw file and of the compressed one.
        compression: Compresses the file; only the compressed one is then written.

    Returns:
        The raw file, and the compressed one if any.
    """
    size = sum(len(piece) for piece in content)
    raw = FileInfo(basename, size, digests(hashes, content))
    stored = None
    if compression is not None:
        packed = compression.compress(b"".join(content))
        name = f"{basename}.{compression.suffix}" if compression.suffix else basename
        stored = FileInfo(name, len(packed), digests(hashes, [packed]))
        content = [packed]
    target = folder / (stored or raw).basename
    with (
        map_output_errors(target, (stored or raw).bytes),
        stage_file(target) as part,
        part.open("wb", _AT_ONCE) as stream,
    ):
        stream.writelines(content)
    return raw, stored
