"""Files written in whole blocks, which systems map into memory at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import BinaryIO

from streamplug.types import Buffer

BLOCK_BYTES = 2 << 20
"""Size of a huge page: what is written in whole blocks can be mapped by one entry of a page table."""

MAX_UNWRITTEN_SECONDS = 0.1
"""Seconds after which less than a block is written, so that a slow download does not look stalled."""

MAX_BUFFERS_PER_WRITE = 512
"""Buffers per writev(2); most systems allow 1,024."""


class BlockBuffer:
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
        left = (self._taken + self.size) % BLOCK_BYTES
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


def write_chunks(file: BinaryIO, chunks: Iterable[Buffer]) -> None:
    """Write chunks as they come; as `write`."""
    pieces, written = BlockBuffer(), monotonic()
    for chunk in chunks:
        pieces.add(chunk)
        if pieces.size >= BLOCK_BYTES or monotonic() - written > MAX_UNWRITTEN_SECONDS:
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
    rest = [memoryview(piece) for piece in pieces]
    while rest:
        some = rest[:MAX_BUFFERS_PER_WRITE]
        written = os.writev(file.fileno(), some) if len(some) > 1 else file.write(some[0])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:  # on a full disk some is written first
            rest[0] = rest[0][written:]
