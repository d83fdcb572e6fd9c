"""Which index.json something was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from streamplug.types import Buffer

_PIECES = 8
_PIECE = 1 << 13


@dataclass(frozen=True, slots=True)
class Source:
    """What tells one index.json from another.

    Attributes:
        bytes: Its size.
        digest: Digest of all of it, xxh3_128.
        sample: Digest of a few pieces of it, those of `sample_ranges`: found out without reading it.
    """

    bytes: int
    digest: str
    sample: str


def source_of(data: Buffer) -> Source:
    """Return what tells the bytes of an index.json from others."""
    view = memoryview(data)
    pieces = [view[start:stop] for start, stop in sample_ranges(len(view))]
    return Source(len(view), xxhash.xxh3_128_hexdigest(view), sample_digest(pieces))


def sample_ranges(size: int) -> list[tuple[int, int]]:
    """Return where the pieces of a file of so many bytes are: evenly spread, with both ends."""
    last = max(size - _PIECE, 0)
    starts = [last * number // (_PIECES - 1) for number in range(_PIECES)]
    return [(start, min(start + _PIECE, size)) for start in starts]


def sample_digest(pieces: Sequence[Buffer]) -> str:
    """Return the digest of the pieces of an index.json."""
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
