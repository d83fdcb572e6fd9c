"""Writing of shard files: digests, compression and atomic rename."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamplug.index import digests
from streamplug.interfaces import Compression
from streamplug.plugin_kit import stage_file
from streamplug.transfer import map_output_errors
from streamplug.types import Buffer, FileInfo

_WRITE_BUFFER_BYTES = 1 << 18  # three times as fast for rows of a few pages, written one by one


def write_shard_file(
    folder: Path,
    basename: str,
    content: Sequence[Buffer],
    hashes: Sequence[str],
    compression: Compression | None,
) -> tuple[FileInfo, FileInfo | None]:
    """Write a raw file, or only its compressed file, and return the `FileInfo` of both."""
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
