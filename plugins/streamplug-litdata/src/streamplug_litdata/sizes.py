"""How many bytes chunks have.

Versions of LitData before 0.2.40 left the head of a chunk out of what its index.json says, and nothing else
tells them apart: so one of the chunks is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamplug.interfaces import DatasetFiles

_ZSTD = b"\x28\xb5\x2f\xfd"
_FRAME_HEAD = 18


def whole_sizes(chunks: Sequence[Mapping[str, Any]], packed: str, files: DatasetFiles) -> list[int]:
    """Return the bytes of chunks, with their heads, before they were compressed.

    Args:
        chunks: What the index.json says of them.
        packed: What the names of compressed ones end with.
        files: Those of the set.
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
    """Return the size of the content that the head of a frame of Zstandard states (RFC 8878, 3.1.1.1)."""
    if len(frame) < _FRAME_HEAD or not frame.startswith(_ZSTD):
        return None
    flags = frame[4]
    single, dictionary = flags >> 5 & 1, (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    begin = 5 + (1 - single) + dictionary
    size = int.from_bytes(frame[begin : begin + width], "little")
    return (size + 256 if width == 2 else size) if width else None
