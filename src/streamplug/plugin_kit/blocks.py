"""Writes files in whole blocks, which systems map into memory at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import BinaryIO

from streamplug.types import Buffer

BLOCK = 2 << 20
"""Bytes that one entry of a page table can map, if they begin at a multiple and were written at once."""

MAX_UNWRITTEN_SECONDS = 0.1
"""Seconds after which less than a block is written: the file tells a slow download from one that stalls."""

_MOST = 512
"""Pieces that are written at once: systems have a bound, most of them 1,024."""


class Pieces:
    """What comes of a file, in pieces of any size, until it is written.

    Attributes:
        size: How many bytes wait.
    """

    def __init__(self) -> None:
        self.size = 0
        self._waiting: list[Buffer] = []
        self._taken = 0

    def add(self, piece: Buffer) -> None:
        """Add bytes, which must not change any more."""
        self._waiting.append(piece)
        self.size += len(piece)

    def take(self, *, everything: bool = False) -> Sequence[Buffer]:
        """Return what waits: up to the last end of a block, unless it is `everything`, or there is none."""
        left = (self._taken + self.size) % BLOCK
        if everything or left >= self.size:
            left = 0
        self._taken += self.size - left
        ready, self._waiting, self.size = self._waiting, [], left
        while left:
            piece = memoryview(ready.pop())
            cut = max(len(piece) - left, 0)
            self._waiting.insert(0, piece[cut:])
            left -= len(piece) - cut
            if cut:
                ready.append(piece[:cut])
        return ready


def write_all(file: BinaryIO, chunks: Iterable[Buffer]) -> None:
    """Write chunks as they come; as `write`."""
    pieces, written = Pieces(), monotonic()
    for chunk in chunks:
        pieces.add(chunk)
        if pieces.size >= BLOCK or monotonic() - written > MAX_UNWRITTEN_SECONDS:
            write(file, pieces.take())
            written = monotonic()
    write(file, pieces.take(everything=True))


def write(file: BinaryIO, pieces: Sequence[Buffer]) -> None:
    """Write bytes to the end of a file, at once where the system can.

    Args:
        file: One that keeps nothing to itself.
        pieces: What to write.

    Raises:
        OSError: If they cannot be written.
    """
    if not hasattr(os, "writev"):
        pieces = [b"".join(pieces)]
    rest = [memoryview(piece) for piece in pieces]
    while rest:
        some = rest[:_MOST]
        written = os.writev(file.fileno(), some) if len(some) > 1 else file.write(some[0])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:  # on a full disk some is written first
            rest[0] = rest[0][written:]
