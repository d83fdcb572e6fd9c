"""File writes in whole blocks, which the kernel can map as huge pages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import BinaryIO

from streamplug.plugin_kit import OversizeError, check, current
from streamplug.types import Buffer

BLOCK_BYTES = 2 << 20
"""Size of a huge page: files written in whole blocks can be mapped by one page table entry per block."""

MAX_UNWRITTEN_SECONDS = 0.1
"""Time after which a partial block is written, so that a slow download does not look stalled."""

MAX_BUFFERS_PER_WRITE = 512
"""Buffers per writev(2); most systems allow 1,024."""


class BlockBuffer:
    """Buffer of chunks that are to be written to a file; `size` is the number of buffered bytes."""

    def __init__(self) -> None:
        self.size = 0
        self._waiting: list[Buffer] = []
        self._taken = 0

    def add(self, piece: Buffer) -> None:
        """Append bytes, which must not change afterwards."""
        self._waiting.append(piece)
        self.size += len(piece)

    def take(self, *, everything: bool = False) -> Sequence[Buffer]:
        """Return the buffer up to the last block boundary, or all if there is none or `everything` is set."""
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
    """Write chunks to an unbuffered file in whole blocks; raise `Cancelled` if the consumer stops."""
    pieces, written = BlockBuffer(), monotonic()
    for chunk in chunks:
        check()
        pieces.add(chunk)
        if pieces.size >= BLOCK_BYTES or monotonic() - written > MAX_UNWRITTEN_SECONDS:
            write(file, pieces.take())
            written = monotonic()
    write(file, pieces.take(everything=True))


def write(file: BinaryIO, pieces: Sequence[Buffer]) -> None:
    """Append buffers to an unbuffered file, with one system call where possible.

    Raises:
        OversizeError: If the file would have more bytes than the scope of this thread allows.
    """
    rest = [memoryview(piece) for piece in pieces]
    scope = current()
    if scope is not None and scope.max_bytes is not None:
        size = file.tell() + sum(piece.nbytes for piece in rest)
        if size > scope.max_bytes:
            raise OversizeError(f"more than {scope.max_bytes} bytes")
    while rest:
        some = rest[:MAX_BUFFERS_PER_WRITE]
        try:
            written = os.writev(file.fileno(), some) if len(some) > 1 else file.write(some[0])
        except OSError as error:
            error.filename = file.name  # tells it from an error of the connection
            raise
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if written:  # a partial write, such as on a full disk
            rest[0] = rest[0][written:]
