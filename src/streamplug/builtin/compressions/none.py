"""The identity compression."""

from __future__ import annotations

from typing import BinaryIO, ClassVar

from streamplug.interfaces import Compression
from streamplug.plugin_kit import too_large_error
from streamplug.types import Buffer

_PIECE = 1 << 20


class NoCompression(Compression):
    """No compression (``none``)."""

    suffix: ClassVar[str] = ""

    def compress(self, data: Buffer) -> bytes:
        return bytes(data)

    def decompress(self, data: Buffer, *, max_size: int) -> bytes:
        if memoryview(data).nbytes > max_size:
            raise too_large_error("none", max_size)
        return bytes(data)

    def decompress_stream(self, source: BinaryIO, target: BinaryIO, *, max_size: int) -> int:
        size = 0
        while piece := source.read(min(max_size - size + 1, _PIECE)):
            size += len(piece)
            if size > max_size:
                raise too_large_error("none", max_size)
            target.write(piece)
        return size
