"""Sizes of chunks in bytes.

LitData before 0.2.40 excluded the chunk header from the sizes in index.json. No field tells the versions
apart, so the size of one chunk is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamplug_files import DatasetFiles

_ZSTD = b"\x28\xb5\x2f\xfd"
_FRAME_HEAD = 18


def whole_sizes(chunks: Sequence[Mapping[str, Any]], packed: str, files: DatasetFiles) -> list[int]:
    """Return the bytes of decompressed chunks, including their headers.

    Args:
        chunks: Entries of the index.json.
        packed: File name suffix of compressed chunks.
        files: Files of the data set.
    """
    said = [chunk["chunk_bytes"] for chunk in chunks]
    if not chunks:
        return []
    name = chunks[0]["filename"]
    size = (
        _content_size(files.read(name, 0, _FRAME_HEAD))
        if name.endswith(packed)
        else files.sizes([name])[name]
    )
    if size != said[0] + _head(chunks[0]):
        return said
    return [bytes_ + _head(chunk) for chunk, bytes_ in zip(chunks, said)]


def _head(chunk: Mapping[str, Any]) -> int:
    return 4 * (int(chunk["chunk_size"]) + 2)


def _content_size(frame: bytes) -> int | None:
    """Return the content size in the header of a Zstandard frame (RFC 8878, 3.1.1.1)."""
    if len(frame) < _FRAME_HEAD or not frame.startswith(_ZSTD):
        return None
    flags = frame[4]
    single, dictionary = flags >> 5 & 1, (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    begin = 5 + (1 - single) + dictionary
    size = int.from_bytes(frame[begin : begin + width], "little")
    return (size + 256 if width == 2 else size) if width else None
